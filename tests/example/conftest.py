"""The example's handlers, called one by one as an engine would, with artifacts in a folder of the test's own."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from orchestrator.engine.artifacts import artifact_store
from orchestrator.testing import FakeContext, fake_context

SAMPLE = Path("examples/video_upload/sample/bigbuckbunny.mp4")


@pytest.fixture
def run(settings: Any, tmp_path: Path) -> FakeContext:
    """The probe of a run whose upload is the sample."""
    settings.ORCHESTRATOR = dataclasses.replace(settings.ORCHESTRATOR, artifacts_url=str(tmp_path))
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
    source = artifact_store().put("uploads/test/source.mp4", settings.BASE_DIR / SAMPLE)
    return fake_context(
        workflow="video-upload",
        step="probe",
        subject_id="film-1",
        input={"source": source, "email": "ann@example.com"},
        store=artifact_store(),
    )
