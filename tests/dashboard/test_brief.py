"""Where a run stands, in a few words."""

import pytest

from orchestrator.engine.explain_brief import brief
from tests.harness.factory import make

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        ("delayed", "Starts at"),
        ("queued", "probe queued on media-light for 50 s"),
        ("mid_fan_out", "transcode, 1 of 3 shards"),
        ("retrying", "transcode, 2 of 3 shards; 480p failed 2 of 4 times, next try"),
        ("approving", "approve waits for approval by editors since"),
        ("compensating", "Undoing, "),
        ("done", "Done in 9 m 20 s"),
        ("failed", "480p of transcode failed: OSError: ffmpeg exited with 137"),
        ("cancelled", "Cancelled at transcode"),
        ("overdue", "transcode, 0 of 3 shards"),
    ],
)
def test_each_stage(stage, words):
    assert brief(make(stage)).startswith(words)


def test_a_wide_fan_out_is_told_by_its_counters(django_assert_max_num_queries):
    run = make("wide", total=1000)
    with django_assert_max_num_queries(3):
        assert brief(run) == "transcode, 500 of 1,000 shards"
