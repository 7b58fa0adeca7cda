"""Definitions in their normalised form, and worker processes, for tests that write rows by themselves."""

from __future__ import annotations

import hashlib
import json
import uuid
from datetime import timedelta
from typing import Any

from django.utils import timezone

from orchestrator.models import Definition, Lease

BACKOFF = {"first": 10.0, "factor": 2.0, "max": 600.0, "jitter": True}


def compensate_spec(name: str, undoes: list[str], **over: Any) -> dict[str, Any]:
    """A normalised CompensateSpec."""
    base = {"name": name, "handler": name, "retries": 3, "backoff": BACKOFF, "timeout": 600.0, "queue": "default"}
    return {**base, "undoes": undoes, **over}


def step_spec(step_id: str, after: list[str], **over: Any) -> dict[str, Any]:
    """A normalised StepSpec with every default filled in."""
    empty = ("say", "compensate", "fan_out", "window", "join_timeout", "topic", "lock", "on_lock_conflict", "approval")
    base: dict[str, Any] = {"id": step_id, "handler": step_id, "queue": "default", "timeout": 600.0, "retries": 0}
    base |= {"backoff": BACKOFF, "after": after, "join": {"mode": "all", "count": None, "percent": None}}
    base |= dict.fromkeys((*empty, "wait", "workflow", "subject_id", "input", "when"))
    if any(over.get(name) for name in ("approval", "wait", "workflow")):
        base["handler"] = ""
    return {**base, "on_error": "fail", **over}


def workflow_spec(workflow: str, version: int, steps: list[dict[str, Any]], **over: Any) -> dict[str, Any]:
    """A normalised WorkflowSpec."""
    base: dict[str, Any] = {"workflow": workflow, "version": version, "description": "", "owner": "", "runbook": ""}
    base |= {"labels": {}, "deadline": 7200.0, "on_deadline": "fail", "schedule": None, "exclusive": None}
    failure = {"compensate": [], "terminal_state": "failed", "hold": None}
    return {**base, "steps": steps, "on_failure": failure, **over}


def video_spec(version: int = 3, shards: list[str] | None = None) -> dict[str, Any]:
    """probe -> (transcode x n, captions) -> thumbnail -> approve -> notify, with undo for two of them."""
    items = shards or ["1080p", "720p", "480p"]
    steps = [
        step_spec(
            "probe",
            [],
            say="Checking your video",
            queue="media-light",
            timeout=60.0,
            retries=3,
            compensate=compensate_spec("release_storage_quota", ["probe"]),
        ),
        step_spec(
            "transcode",
            ["probe"],
            say="Converting your video",
            queue="media-heavy",
            timeout=1800.0,
            retries=3,
            fan_out={"items": items, "source": None},
            window=1000,
            compensate=compensate_spec("delete_rendition", ["transcode"]),
        ),
        step_spec("captions", ["probe"], say="Writing captions", queue="media-light", on_error="continue"),
        step_spec("thumbnail", ["transcode"], say="Making a preview picture", queue="media-light", retries=2),
        step_spec(
            "approve",
            ["thumbnail", "captions"],
            say="Waiting for a check by our editors",
            approval={"group": "editors", "timeout": 172800.0, "on_timeout": "fail"},
        ),
        step_spec("notify", ["approve"], say="Letting you know"),
    ]
    all_ids = [s["id"] for s in steps]
    failure = {"compensate": [compensate_spec("purge_cdn", all_ids)], "terminal_state": "failed", "hold": None}
    about = {"owner": "media-platform", "runbook": "https://runbooks.example/video-upload", "on_failure": failure}
    return workflow_spec("video-upload", version, steps, description="From an upload to a published video", **about)


def definition(spec: dict[str, Any] | None = None) -> Definition:
    """The stored version with this spec (default: :func:`video_spec`), made when missing."""
    spec = spec or video_spec()
    text = json.dumps(spec, sort_keys=True)
    values = {"content_hash": hashlib.sha256(text.encode()).hexdigest(), "spec": spec, "source": text}
    found, _ = Definition.objects.get_or_create(
        workflow=spec["workflow"], version=spec["version"], defaults={**values, "origin": "tests/video-upload.yaml"}
    )
    return found


def lease(name: str = "media-heavy-1", queues: list[str] | None = None, alive: bool = True) -> Lease:
    """A worker process; ``alive``: its lease runs for another 30 s, else it ran out a minute ago."""
    now = timezone.now()
    return Lease.objects.create(
        token=uuid.uuid4(),
        name=name,
        host="worker-1",
        pid=4711,
        queues=queues or ["media-heavy"],
        heartbeat_at=now,
        expires_at=now + timedelta(seconds=30 if alive else -60),
    )
