"""The harness itself: a scratch database that other processes see, and that is empty for the next test."""

from __future__ import annotations

import time

import pytest
from django.contrib.auth.models import Group, User

from orchestrator.models import Topic
from tests.harness.live import Live
from tests.harness.wait import wait_until

pytestmark = pytest.mark.servers


@pytest.mark.parametrize("turn", [1, 2])
def test_committed_rows_are_seen_by_processes_and_gone_for_the_next_test(live: Live, turn: int) -> None:
    assert not Topic.objects.exists()
    assert not User.objects.exists()
    assert Group.objects.filter(name="operator").exists()
    Topic.objects.create(name="gpu", limit=turn)
    shown = live.manage(
        "shell", "--no-imports", "-c", "from orchestrator.models import Topic; print(Topic.objects.get().limit)"
    )
    assert shown.stdout.strip() == str(turn), shown.stderr


def test_processes_can_be_paused_and_killed(live: Live) -> None:
    process = live.start("shell", "shell", "--no-imports", "-c", "import time; print('up'); time.sleep(60)")
    process.wait_for_line("up")
    process.pause()
    time.sleep(0.1)
    assert process.is_running()
    process.resume()
    process.kill_all()
    assert not process.is_running()


def test_configure_holds_here_and_in_processes(live: Live, settings: object) -> None:
    live.configure(ORCHESTRATOR_LEASE_SECONDS="7")
    assert settings.ORCHESTRATOR.lease_seconds == 7  # type: ignore[attr-defined]
    code = "from django.conf import settings; print(settings.ORCHESTRATOR.lease_seconds)"
    assert live.manage("shell", "--no-imports", "-c", code).stdout.strip() == "7.0"


def test_wait_until_says_what_was_missing() -> None:
    with pytest.raises(AssertionError, match=r"not within 0\.05 s: the moon"):
        wait_until(lambda: False, 0.05, why="the moon")
