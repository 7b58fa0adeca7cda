"""The fault matrix on the example: real video, and renditions that are gone when a run was undone."""

from __future__ import annotations

import io
import json

import av
import pytest

from examples.video_upload.handlers import QUOTA, READY, RENDITION, SENT, SPRITE
from orchestrator.engine.artifacts import artifact_store
from orchestrator.testing import fault_matrix
from orchestrator.testing.outcome import Outcome
from tests.harness.live import Live

pytestmark = [pytest.mark.servers, pytest.mark.long, pytest.mark.timeout(600)]


def short_clip() -> bytes:
    """Half a second of grey."""
    out = io.BytesIO()
    with av.open(out, "w", format="mp4") as video:
        stream = video.add_stream("libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = 160, 90, "yuv420p"
        for _ in range(6):
            video.mux(stream.encode(av.VideoFrame(160, 90, "yuv420p")))
        video.mux(stream.encode())
    return out.getvalue()


def what_is_left(outcome: Outcome) -> None:
    """Everything once where the run is done; nothing but the note of a mail where it was undone."""
    names = sorted(a.name for a in artifact_store().iter_run(outcome.run_id))
    if outcome.state == "done":
        assert names == sorted([QUOTA, READY, SENT, SPRITE, *[RENDITION] * 3]), names
        with artifact_store().open_key(f"runs/{outcome.run_id}/notify/_/{READY}") as file:
            assert len(json.load(file)["renditions"]) == 3
    elif outcome.case.expect.undone:
        assert names in ([], [SENT]), names  # a mail that went out cannot be called back


def test_the_example_survives_every_fault(live: Live) -> None:
    live.configure(
        ORCHESTRATOR_WORKFLOWS="examples.video_upload", EMAIL_BACKEND="django.core.mail.backends.dummy.EmailBackend"
    )
    source = artifact_store().put("uploads/fault-matrix/source.mp4", short_clip())
    given = {"source": source, "email": "ann@example.com"}
    matrix = fault_matrix("video-upload", given, what_is_left, packages=["examples.video_upload"])
    assert {c["step"] for c in matrix.as_json()["cases"]} >= {"probe", "transcode", "thumbnail", "notify"}
    assert ("notify", "kill after send mail") in {(c["step"], c["case"]) for c in matrix.as_json()["cases"]}
