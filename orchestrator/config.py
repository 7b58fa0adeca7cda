"""Reads the environment into typed settings. Imports no Django, so that settings can use it first."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from environs import Env

from orchestrator.core.durations import BadDuration, parse_duration
from orchestrator.services.state import ServicesError, load

#: An address where nothing listens.
NOWHERE = "127.0.0.1:1"


class ConfigError(Exception):
    """An environment variable that cannot be read; the message names it."""


@dataclass(frozen=True)
class EngineSettings:
    """Every timing and size of the engine. Durations are seconds."""

    workflows: list[str]
    queues: list[str]
    lease_seconds: float
    sweep_seconds: float
    cancel_grace_seconds: float
    inline_bytes: int
    default_deadline: float
    default_timeout: float
    slice_seconds: float
    short_batch_seconds: float
    max_batch: int
    default_window: int
    bulk_per_second: int
    on_lock_conflict: str
    topic_limits: dict[str, int | None]
    sync_commit: bool
    artifacts_url: str


@dataclass(frozen=True)
class PrivateUrls:
    """Addresses of the servers that ``manage.py services`` runs when none are named."""

    database: str
    redis: str


def read_bool(env: Env, name: str, default: bool) -> bool:
    """A switch: true, false, 1, 0, yes, no, on, off; empty means the default."""
    raw = env.str(name, "").strip().lower()
    if not raw:
        return default
    if raw in ("1", "true", "yes", "on", "y", "t"):
        return True
    if raw in ("0", "false", "no", "off", "n", "f"):
        return False
    raise ConfigError(f"environment variable {name}: {raw!r} is neither true nor false")


def read_choice(env: Env, name: str, default: str, choices: tuple[str, ...]) -> str:
    """One of a few words, in capitals or not; empty means the default."""
    value = env.str(name, "").strip().upper() or default
    if value not in choices:
        raise ConfigError(f"environment variable {name}: {value!r} is none of {', '.join(choices)}")
    return value


def read_list(env: Env, name: str, default: list[str]) -> list[str]:
    """Words separated by commas; empty means the default."""
    return [word.strip() for word in env.str(name, "").split(",") if word.strip()] or default


def _choice(env: Env, name: str, allowed: tuple[str, ...]) -> str:
    value = env.str(name, "")
    if value not in allowed:
        raise ConfigError(f"environment variable {name}: {value!r} is not one of {', '.join(filter(None, allowed))}")
    return value


def read_int(env: Env, name: str, default: int, *, low: int = 0, high: int = 2**31 - 1) -> int:
    """A whole number within bounds; empty means the default."""
    raw = env.str(name, "").strip() or str(default)
    try:
        value = int(raw)
    except ValueError:
        raise ConfigError(f"environment variable {name}: {raw!r} is not a whole number") from None
    if not low <= value <= high:
        raise ConfigError(f"environment variable {name}: {value} is not between {low} and {high}")
    return value


def read_duration(env: Env, name: str, default: str) -> float:
    """Seconds, as a plain number (``0.5``) or a duration (``10m``); above zero."""
    raw = env.str(name, "").strip() or default
    try:
        value = float(raw)
    except ValueError:
        try:
            value = parse_duration(raw)
        except BadDuration as error:
            raise ConfigError(f"environment variable {name}: {error}; a plain number is seconds") from None
    if not math.isfinite(value) or value <= 0:
        raise ConfigError(f"environment variable {name}: {raw!r} is not a length of time above zero")
    return value


def read_url(env: Env, name: str, schemes: tuple[str, ...], example: str) -> str:
    """A URL of one of the schemes; empty when the variable is."""
    raw = env.str(name, "").strip()
    if not raw:
        return ""
    try:
        parts = urlsplit(raw)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"environment variable {name}: {error}; write it like {example}") from None
    if parts.scheme not in schemes or not (parts.hostname or port or parts.path.strip("/")):
        raise ConfigError(f"environment variable {name}: not a URL that is known here; write it like {example}")
    return raw


def _workflows(env: Env) -> list[str]:
    name = "ORCHESTRATOR_WORKFLOWS"
    packages = [w.strip() for w in env.str(name, "").split(":") if w.strip()] or ["examples.video_upload"]
    for package in packages:
        if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", package):
            raise ConfigError(
                f"environment variable {name}: {package!r} is not the name of a package; "
                "write importable packages separated by colons, such as shop.workflows:media.workflows"
            )
    return packages


@dataclass(frozen=True)
class Environment:
    """What the environment says, beside the engine's settings. Empty addresses mean: the private server."""

    debug: bool
    database: str
    redis: str
    port: int
    alert_webhook: str
    log_level: str
    behind_proxy: bool
    static_hashed: bool | None
    web_processes: int


def read_environment(env: Env) -> tuple[Environment, EngineSettings]:
    """Reads and checks every variable.

    Raises:
        ConfigError: for the first that cannot be read; it names the variable.
    """
    database = env.str("DATABASE_URL", "").strip()
    if database:
        database_settings(database)
    environment = Environment(
        debug=read_bool(env, "DEBUG", False),
        database=database,
        redis=read_url(env, "REDIS_URL", ("redis", "rediss", "unix"), "redis://:password@host:6379/0"),
        port=read_int(env, "PORT", 8000, low=1, high=65535),
        alert_webhook=read_url(env, "ALERT_WEBHOOK_URL", ("http", "https"), "https://hooks.example.com/abc"),
        log_level=read_choice(env, "LOG_LEVEL", "INFO", ("DEBUG", "INFO", "WARNING", "ERROR")),
        behind_proxy=read_bool(env, "BEHIND_PROXY", False),
        web_processes=read_int(env, "WEB_CONCURRENCY", 2, low=1, high=256),
        static_hashed=read_bool(env, "STATIC_HASHED", False) if env.str("STATIC_HASHED", "") else None,
    )
    return environment, load_engine_settings(env)


def load_engine_settings(env: Env) -> EngineSettings:
    """The engine's settings.

    Raises:
        ConfigError: for a value that cannot be read; it names the variable.
    """
    return EngineSettings(
        workflows=_workflows(env),
        queues=read_list(env, "ORCHESTRATOR_QUEUES", ["default", "media-light", "media-heavy"]),
        lease_seconds=read_duration(env, "ORCHESTRATOR_LEASE_SECONDS", "30"),
        sweep_seconds=read_duration(env, "ORCHESTRATOR_SWEEP_SECONDS", "5"),
        cancel_grace_seconds=read_duration(env, "ORCHESTRATOR_CANCEL_GRACE_SECONDS", "10"),
        inline_bytes=read_int(env, "ORCHESTRATOR_INLINE_BYTES", 65536),
        default_deadline=read_duration(env, "ORCHESTRATOR_DEFAULT_DEADLINE", "24h"),
        default_timeout=read_duration(env, "ORCHESTRATOR_DEFAULT_TIMEOUT", "10m"),
        slice_seconds=read_duration(env, "ORCHESTRATOR_SLICE_SECONDS", "1"),
        short_batch_seconds=read_duration(env, "ORCHESTRATOR_SHORT_BATCH_SECONDS", "0.05"),
        max_batch=read_int(env, "ORCHESTRATOR_MAX_BATCH", 200, low=1),
        on_lock_conflict=_choice(env, "ORCHESTRATOR_ON_LOCK_CONFLICT", ("", "requeue", "reject", "dead_letter")),
        topic_limits=_topic_limits(env),
        default_window=read_int(env, "ORCHESTRATOR_DEFAULT_WINDOW", 1000, low=1),
        bulk_per_second=read_int(env, "ORCHESTRATOR_BULK_PER_SECOND", 20, low=1, high=10_000),
        sync_commit=read_bool(env, "ORCHESTRATOR_SYNCHRONOUS_COMMIT", False),
        artifacts_url=_artifacts(env),
    )


def _topic_limits(env: Env) -> dict[str, int | None]:
    """``gpu=4, mail=10``: limits of topics by name; ``none`` is unlimited, 0 pauses."""
    name = "ORCHESTRATOR_TOPIC_LIMITS"
    limits: dict[str, int | None] = {}
    for word in read_list(env, name, []):
        topic, _, limit = (part.strip() for part in word.partition("="))
        unlimited = limit.lower() in ("none", "unlimited")
        if not re.fullmatch(r"[^\s\x00-\x1f]{1,200}", topic) or not (unlimited or re.fullmatch(r"[0-9]{1,9}", limit)):
            raise ConfigError(
                f"environment variable {name}: {word!r} is no topic and its limit; write it like gpu=4,mail=10, with a "
                "whole number from 0, or none"
            )
        limits[topic] = None if unlimited else int(limit)
    return limits


def _artifacts(env: Env) -> str:
    raw = env.str("ARTIFACTS_URL", "").strip()
    scheme = urlsplit(raw).scheme
    if scheme not in ("", "s3", "file") or raw == "s3://":
        raise ConfigError(f"environment variable ARTIFACTS_URL: {raw!r} is neither a folder nor s3://bucket/prefix")
    return raw


def database_settings(url: str) -> dict[str, Any]:
    """Django's DATABASES entry for a PostgreSQL URL.

    Raises:
        ConfigError: for another database or a URL that cannot be read.
    """
    try:
        parts = urlsplit(url.strip())
    except ValueError as error:
        raise ConfigError(f"environment variable DATABASE_URL: {error}") from None
    if parts.scheme not in ("postgresql", "postgres"):
        raise ConfigError(
            f"environment variable DATABASE_URL: {parts.scheme or 'a URL without a scheme'} is not PostgreSQL. "
            "Switchyard keeps its record in PostgreSQL 15 or later: postgresql://user:password@host:5432/name"
        )
    options = dict(parse_qsl(parts.query))
    host = options.pop("host", "") or unquote(parts.hostname or "")
    try:
        port = options.pop("port", "") or (str(parts.port) if parts.port else "")
    except ValueError:
        raise ConfigError("environment variable DATABASE_URL: the port is not a number") from None
    return {
        "ENGINE": "orchestrator.postgres",
        "NAME": unquote(parts.path.lstrip("/")) or "postgres",
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": host,
        "PORT": port,
        "OPTIONS": options,
        "CONN_MAX_AGE": 60,
        "CONN_HEALTH_CHECKS": True,
    }


def private_urls(local: Path) -> PrivateUrls:
    """Addresses of the private servers, from the file that ``manage.py services`` keeps.

    Before their first start the addresses lead nowhere.

    Raises:
        ConfigError: the file cannot be read.
    """
    try:
        kept = load(local)
    except ServicesError as error:
        raise ConfigError(error.message) from None
    return PrivateUrls(
        database=kept.get("database", f"postgresql://postgres@{NOWHERE}/switchyard"),
        redis=kept.get("redis", f"redis://{NOWHERE}/0"),
    )
