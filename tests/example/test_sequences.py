"""The sequences of docs/sequences.md, to their end on real worker processes; what the page quotes is in the files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import psutil
import pytest

from orchestrator.core.actor import Actor
from orchestrator.core.errors import Conflict
from orchestrator.engine.operate import retry_run
from orchestrator.models import AuditRecord, DeadLetter, Lease, Run, Step
from orchestrator.sdk import set_topic_limit, submit, submit_many
from tests.harness.invariants import check_invariants
from tests.harness.live import Live
from tests.harness.wait import wait_until

pytestmark = pytest.mark.servers
PACKAGE = "examples.sequences"
OPERATOR = Actor("olga", "operator")


class Sequences:
    """The package on real processes, and the files that make its stand-in of a service slow or let it fail."""

    def __init__(self, live: Live) -> None:
        self.live = live

    def start(self, processes: int = 2) -> None:
        self.live.start_dispatcher()
        self.live.start_worker("default", processes=processes)

    def service(self, subject: str, how: str) -> Path:
        """``slow`` or ``down`` for a subject until the file is unlinked."""
        path = self.live.folder / f"{subject.replace('/', '-')}.{how}"
        path.touch()
        return path

    def row(self, run: Run | UUID, step: str, shard: str = "") -> Step:
        return Step.objects.get(run=getattr(run, "pk", run), step=step, shard=shard)

    def attempts(self, run: Run) -> dict[str, int]:
        return {step.step: step.attempt for step in run.steps.all()}

    def until(self, condition: Callable[[], object]) -> None:
        wait_until(
            condition, 20, why=lambda: [self.live.describe(pk) for pk in Run.objects.values_list("pk", flat=True)[:4]]
        )

    def running(self, run: UUID, step: str, shard: str = "") -> Step:
        """Waits until a worker has it."""
        self.until(lambda: Step.objects.filter(run=run, step=step, shard=shard, state="running").exists())
        return self.row(run, step, shard)


@pytest.fixture
def sequences(live: Live) -> Iterator[Sequences]:
    live.configure(TMPDIR=str(live.folder))
    live.publish(PACKAGE)
    yield Sequences(live)
    check_invariants()


def test_chain_and_plain_loop(sequences):
    """A chain that broke goes on where it broke."""
    sequences.service("share-2", "down")
    sequences.start()
    good, bad = submit("pipe", "share-1"), submit("pipe", "share-2")
    attached = submit("pipe", "share-3", parent=good)
    loop = submit("tidy", "t", {"names": ["a", "b", "c"]})

    run = sequences.live.finish(good)
    assert (run.state, run.output) == ("done", {"kept": ["page of share-1", "answer for share-1"]})
    assert sequences.attempts(run) == {"fetch": 1, "enrich": 1, "finalize": 1}
    run = sequences.live.finish(loop)
    assert (run.state, run.output, run.steps.count()) == ("done", {"swept": 3}, 1)
    run = sequences.live.finish(attached)
    assert (run.state, run.parent_run_id, run.parent_step_id) == ("done", good, None)

    run = sequences.live.finish(bad)
    assert (run.state, run.cause, run.dead_letters.get().state) == ("failed", "error", "open")
    assert sequences.row(run, "finalize").state == "skipped"
    (sequences.live.folder / "share-2.down").unlink()
    retry_run(run.pk, OPERATOR, "the service is back")
    run = sequences.live.finish(bad)
    assert (run.state, run.dead_letters.get().state) == ("done", "replayed")
    assert sequences.attempts(run) == {"fetch": 1, "enrich": 2, "finalize": 1}


def test_serialised_fan_out(sequences):
    """The service refuses a second caller; none came, of two runs on three processes. A limit set at run time wins."""
    set_topic_limit("ocr", 0)
    sequences.start(processes=3)
    ids = submit_many({"workflow": "carousel", "subject_id": post, "input": {"count": 6}} for post in ("p", "q"))
    sequences.until(lambda: Step.objects.filter(state="waiting", waiting_for="topic").exists())
    assert not Step.objects.filter(step="ocr_image", attempt__gt=0).exists()
    set_topic_limit("ocr", 1)
    runs = [sequences.live.finish(run_id) for run_id in ids]
    assert [run.state for run in runs] == ["done", "done"]
    assert runs[0].output == {f"p-{n}.jpg": f"text of p-{n}.jpg" for n in range(1, 7)}
    assert set(Step.objects.filter(step="ocr_image").values_list("state", "attempt")) == {("done", 1)}


def test_completion_join(sequences):
    """It comes once all have ended, sees what failed, and outlives a killed worker."""
    slow = sequences.service("lost/north", "slow")
    sequences.start()
    lost = submit("survey", "lost")
    row = sequences.running(lost, "ask", "north")
    process = psutil.Process(Lease.objects.get(pk=row.lease_id).pid)
    run = sequences.live.finish(submit("survey", "s", {"moved": ["west"]}))
    assert (run.state, run.output) == ("done", {"answers": 3, "failed": ["west"]})
    assert sequences.row(run, "ask", "west").state == "failed" and sequences.row(run, "join").attempt == 1
    assert DeadLetter.objects.get(run=run).shard == "west"
    ends = run.steps.filter(step="ask").values_list("finished_at", flat=True)
    assert sequences.row(run, "join").started_at >= max(end for end in ends if end)

    process.kill()
    slow.unlink()
    run = sequences.live.finish(lost)
    assert (run.state, run.output) == ("done", {"answers": 4, "failed": []})
    assert sequences.row(run, "ask", "north").attempt == 2 and sequences.row(run, "join").attempt == 1


def test_lock_requeue_and_what_a_submission_says(sequences):
    slow = sequences.service("a", "slow")
    sequences.start()
    first = submit("item", "a", {"item": 7})
    sequences.running(first, "process")
    second, other = submit("item", "b", {"item": 7}), submit("item", "c", {"item": 8})
    refused = submit("item", "d", {"item": 7}, on_lock_conflict="reject")
    assert sequences.live.finish(other).state == "done"
    run = sequences.live.finish(refused)
    assert (run.state, run.cause, sequences.row(run, "process").state) == ("failed", "lock", "rejected")
    sequences.until(lambda: Step.objects.filter(run=second, state="waiting", waiting_for="lock").exists())
    slow.unlink()
    assert {sequences.live.finish(run_id).state for run_id in (first, second)} == {"done"}
    assert sequences.row(second, "process").attempt == 1
    assert sequences.row(second, "process").started_at >= sequences.row(first, "process").finished_at


def test_lock_reject_dead_letter_and_exclusive(sequences):
    slow = sequences.service("acme", "slow")
    sequences.start(processes=4)
    holders = {workflow: submit(workflow, "acme") for workflow in ("sync", "ledger", "profile")}
    for workflow, step in (("sync", "pull"), ("ledger", "post"), ("profile", "fetch")):
        sequences.running(holders[workflow], step)

    with pytest.raises(Conflict, match=str(holders["profile"])):
        submit("profile", "acme")
    record = AuditRecord.objects.get(action="rejected")
    assert record.run_id == holders["profile"] and Run.objects.filter(workflow="profile").count() == 1

    run = sequences.live.finish(submit("sync", "acme"))
    assert (run.state, run.cause, run.output) == ("done", None, {"pulled": None})
    row = sequences.row(run, "pull")
    assert (row.state, row.cause, row.attempt, run.dead_letters.count()) == ("rejected", "lock", 0, 0)
    run = sequences.live.finish(submit("ledger", "acme"))
    assert (run.state, run.cause, run.dead_letters.get().cause) == ("failed", "lock", "lock")

    slow.unlink()
    assert {sequences.live.finish(run_id).state for run_id in holders.values()} == {"done"}
    retry_run(run.pk, OPERATOR, "the lock is free")
    assert sequences.live.finish(run.pk).state == "done"
    assert sequences.live.finish(submit("profile", "acme")).state == "done"


def test_parents_children_and_a_run_after_others(sequences):
    slow = sequences.service("slow", "slow")
    sequences.service("bad", "down")
    sequences.start()
    both = [submit("pipe", "slow"), submit("pipe", "bad")]
    last = submit("tidy", "t", {"names": ["x"]}, after=both)

    run = sequences.live.finish(submit("digest", "monday", {"links": 3}))
    read = {item: [f"page of monday/{item}", f"answer for monday/{item}"] for item in ("news", "mail")}
    assert (run.state, run.output) == ("done", read)
    children = Run.objects.filter(parent_run=run).order_by("id")
    collect = sequences.row(run, "collect")
    mine = children.filter(parent_step=collect)
    assert collect.output == [str(child.pk) for child in mine] and (mine.count(), children.count()) == (3, 5)
    assert all(child.finished_at <= sequences.row(run, "publish").started_at for child in children)

    assert sequences.live.finish(both[1]).state == "failed"
    assert Run.objects.get(pk=last).started_at is None
    slow.unlink()
    run = sequences.live.finish(last)
    assert run.state == "done" and run.started_at >= Run.objects.get(pk=both[0]).finished_at


ROOT = Path(__file__).parents[2]
DOCS = (ROOT / "docs" / "sequences.md").read_text()


@pytest.mark.parametrize(("language", "suffix"), [("yaml", "*.yaml"), ("python", "*.py")])
def test_what_the_page_shows_is_in_the_files(language, suffix):
    blocks = re.findall(rf"```{language}\n# (\S+)\n(.*?)```", DOCS, re.DOTALL)
    shown = set()
    for name, block in blocks:
        assert block.strip() in (ROOT / name).read_text(), name
        shown.add(name)
    assert len(blocks) == len(re.findall(rf"```{language}\n", DOCS)), "each block names its file"
    if language == "yaml":
        assert shown == {str(path.relative_to(ROOT)) for path in (ROOT / "examples/sequences").glob(suffix)}
