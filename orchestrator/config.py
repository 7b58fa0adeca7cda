"""Reads the environment into typed settings. Imports no Django, so that settings can use it first."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from environs import Env

from orchestrator.core.durations import BadDuration, parse_duration


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
    sync_commit: bool
    artifacts_url: str


@dataclass(frozen=True)
class PrivateUrls:
    """Addresses of the servers that ``manage.py services`` runs when none are named."""

    database: str
    redis: str
    secret_key: str


def _duration(env: Env, name: str, default: str) -> float:
    raw = env.str(name, "") or default
    try:
        return float(raw)
    except ValueError:
        pass
    try:
        return parse_duration(raw)
    except BadDuration as error:
        raise ConfigError(f"environment variable {name}: {error}") from None


def _int(env: Env, name: str, default: int) -> int:
    raw = env.str(name, "") or str(default)
    try:
        return int(raw)
    except ValueError:
        raise ConfigError(f"environment variable {name}: {raw!r} is not a whole number") from None


def load_engine_settings(env: Env) -> EngineSettings:
    """The engine's settings.

    Raises:
        ConfigError: for a value that cannot be read; it names the variable.
    """
    workflows = [w for w in env.str("ORCHESTRATOR_WORKFLOWS", "examples.video_upload").split(":") if w]
    return EngineSettings(
        workflows=workflows,
        queues=env.list("ORCHESTRATOR_QUEUES", ["default", "media-light", "media-heavy"]),
        lease_seconds=_duration(env, "ORCHESTRATOR_LEASE_SECONDS", "30"),
        sweep_seconds=_duration(env, "ORCHESTRATOR_SWEEP_SECONDS", "5"),
        cancel_grace_seconds=_duration(env, "ORCHESTRATOR_CANCEL_GRACE_SECONDS", "10"),
        inline_bytes=_int(env, "ORCHESTRATOR_INLINE_BYTES", 65536),
        default_deadline=_duration(env, "ORCHESTRATOR_DEFAULT_DEADLINE", "24h"),
        default_timeout=_duration(env, "ORCHESTRATOR_DEFAULT_TIMEOUT", "10m"),
        slice_seconds=_duration(env, "ORCHESTRATOR_SLICE_SECONDS", "1"),
        short_batch_seconds=_duration(env, "ORCHESTRATOR_SHORT_BATCH_SECONDS", "0.05"),
        max_batch=_int(env, "ORCHESTRATOR_MAX_BATCH", 200),
        default_window=_int(env, "ORCHESTRATOR_DEFAULT_WINDOW", 1000),
        sync_commit=env.bool("ORCHESTRATOR_SYNCHRONOUS_COMMIT", False),
        artifacts_url=env.str("ARTIFACTS_URL", ""),
    )


def database_settings(url: str) -> dict[str, Any]:
    """Django's DATABASES entry for a PostgreSQL URL.

    Raises:
        ConfigError: for another database or a URL that cannot be read.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("postgresql", "postgres"):
        raise ConfigError(
            f"environment variable DATABASE_URL: {parts.scheme or 'this'!r} is not PostgreSQL. Switchyard keeps its "
            "record in PostgreSQL 15 or later: postgresql://user:password@host:5432/name"
        )
    options = dict(parse_qsl(parts.query))
    host = options.pop("host", "") or unquote(parts.hostname or "")
    try:
        port = options.pop("port", "") or (str(parts.port) if parts.port else "")
    except ValueError:
        raise ConfigError("environment variable DATABASE_URL: the port is not a number") from None
    return {
        "ENGINE": "django.db.backends.postgresql",
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
    """Addresses of the private servers, from the file that ``manage.py services`` keeps."""
    path = local / "services.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    return PrivateUrls(
        database=kept.get("database", "postgresql://postgres@127.0.0.1:1/switchyard"),
        redis=kept.get("redis", "redis://127.0.0.1:1/0"),
        secret_key=kept.get("secret_key") or secrets.token_urlsafe(48),
    )
