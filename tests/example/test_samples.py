"""The sample runs of ``make run``: submitted once, and broken where they are meant to be."""

from __future__ import annotations

import pytest

from examples.video_upload import demo, handlers
from orchestrator.definitions.publish import publish
from orchestrator.engine.artifacts import artifact_store
from orchestrator.models import Run
from orchestrator.sdk import Fail
from orchestrator.testing import FakeContext, fake_context


@pytest.mark.django_db(transaction=True)
def test_samples_are_submitted_once(run: FakeContext) -> None:
    publish(["examples.video_upload"])
    first = demo.submit_samples()
    assert demo.submit_samples() == first and Run.objects.count() == 3

    def start(run_id: object) -> FakeContext:
        return fake_context(step="probe", input=Run.objects.get(pk=run_id).input, store=artifact_store())

    good, cut_off, damaged = (start(run_id) for run_id in first)
    assert handlers.probe(good)["seconds"] == pytest.approx(5.28)
    with pytest.raises(Fail, match="cut off"):
        handlers.probe(cut_off)
    damaged.done(handlers.probe(damaged))
    with pytest.raises(Fail, match="damaged"):
        handlers.transcode(damaged.then("transcode", "480p"))
