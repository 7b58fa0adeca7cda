"""The example's definition is one that ``publish`` takes."""

from __future__ import annotations

import pytest

from orchestrator.definitions.publish import check


@pytest.mark.django_db
def test_the_package_can_be_published() -> None:
    [found] = check(["examples.video_upload"])
    assert (found.workflow, found.version) == ("video-upload", 1)
