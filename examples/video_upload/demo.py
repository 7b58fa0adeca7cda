"""Sample runs: one that ends well, one whose file is cut off, one that breaks halfway and is undone."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from django.core.files import File

from orchestrator.core.actor import Actor
from orchestrator.engine.artifacts import artifact_store
from orchestrator.engine.submit import submit

SAMPLE = Path(__file__).parent / "sample" / "bigbuckbunny.mp4"
WORKFLOW = "video-upload"


def submit_samples() -> list[uuid.UUID]:
    """Stores the samples and submits a run of each, once however often it is called; answers the run ids."""
    whole = SAMPLE.read_bytes()
    samples = {
        "big-buck-bunny": whole,
        "cut-off-upload": whole[: len(whole) // 2],  # probe finds out, nothing else starts
        "damaged-in-the-middle": _damaged(whole),  # found out while transcoding, so there is something to undo
    }
    return [_submit_one(name, data) for name, data in samples.items()]


def store_upload(file: File[Any]) -> str:
    """Stores an uploaded file; the key is the ``source`` of a run's input."""
    return artifact_store().store_upload(file, file.name or "")


def _submit_one(name: str, data: bytes) -> uuid.UUID:
    key = f"uploads/sample-{name}/source.mp4"
    store = artifact_store()
    if not store.exists_key(key):
        store.put(key, data)
    email = "uploader@example.com"
    return submit(
        WORKFLOW,
        name,
        {"source": key, "email": email},
        idempotency_key=f"sample-{name}",
        labels={"sample": "yes", "uploader": email},
        actor=Actor("samples", "operator"),
    )


def _damaged(video: bytes) -> bytes:
    """The same length and index, with zeros where pictures were: it looks whole until somebody decodes it."""
    start, end = int(len(video) * 0.65), int(len(video) * 0.75)
    return video[:start] + bytes(end - start) + video[end:]
