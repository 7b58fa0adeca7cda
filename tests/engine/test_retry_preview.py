"""What a retry says beforehand of calls to the outside, and what becomes of child runs in it."""

from __future__ import annotations

import pytest

from orchestrator.engine import children
from orchestrator.engine.operate import preview_retry
from orchestrator.models import Run, Step


def effects(run, **more):
    found = preview_retry(getattr(run, "pk", run), **more)
    return {f"{i.step} {i.shard}".strip(): i.side_effects for i in found.steps if i.side_effects}, found.side_effects


def marked(kit, run, step, shard=""):
    """The watching thread writes marks beside the handler, but has written them when the batch has ended."""
    return kit.row(run, step, shard).external


def test_only_what_runs_again_is_named(kit):
    do = {
        "f/1": "external:encode",
        "f/2": "external:encode; external:pay a fee; fail_until:mended",
        "j": "external:send mail",
    }
    run = kit.go("strict", do)
    assert run.state == "failed"
    assert marked(kit, run, "f", "2") == "encode\npay a fee"
    assert effects(run) == ({"f 2": ["encode", "pay a fee"]}, {"encode": 1, "pay a fee": 1})
    by_step, counted = effects(run, from_step="*")
    assert by_step == {"f 1": ["encode"], "f 2": ["encode", "pay a fee"]}
    assert counted == {"encode": 2, "pay a fee": 1}
    kit.ledger.open("mended")
    assert kit.retry(run).state == "done"


def test_what_any_earlier_attempt_marked_is_kept(kit):
    """The second attempt died before its call; the first one's may have been made."""
    run = kit.go("tries", {"a": "fail_until:first; external:mail; external:mail; fatal"})
    assert (run.state, marked(kit, run, "a")) == ("failed", None)
    kit.ledger.open("first")
    run = kit.retry(run)
    kit.ledger.close("first")
    run = kit.retry(run)
    assert (run.state, kit.row(run, "a").attempt, marked(kit, run, "a")) == ("failed", 7, "mail")
    assert effects(run) == ({"a": ["mail"]}, {"mail": 1})


def test_what_was_undone_is_called_again_and_secrets_are_not_told(kit):
    run = kit.go("saga", {"a": "external:charge token=s3cr3t-X", "b": "ok", "c": "ok", "d": "fatal"})
    assert run.compensation == "done"
    by_step, counted = effects(run)
    assert by_step == {"a": ["charge token=[masked]"]}
    assert counted == {"charge token=[masked]": 1}


def test_a_mark_cannot_break_the_list(kit):
    run = kit.go("tries", {"a": "external:two\nlines " + "x" * 500 + "; fatal"})
    (name,) = effects(run)[1]
    assert name.startswith("two lines") and len(name) < 300
    run = kit.go("tries", {"a": "; ".join(f"external:call {i}" for i in range(50)) + "; fatal"}, subject="many")
    assert len(effects(run)[1]) == 20


def family(kit, workflow, child, **do):
    """Submitted and taken as far as it goes, children too, which the dispatcher starts and joins."""
    run_id = kit.submit(workflow, do, input={"child": child})
    settle(kit)
    return kit.run(run_id)


def settle(kit):
    conn = kit.worker.conn
    for _ in range(20):
        kit.worker.work()
        if not children.start(conn) + children.join(conn):
            return


def below(run):
    return list(Run.objects.filter(parent_run=run).order_by("id").values_list("state", flat=True))


@pytest.mark.parametrize(("workflow", "do"), [("child", {}), ("spawns", {"s": "submit:2"})])
def test_children_that_failed_go_on_with_their_parent(kit, workflow, do):
    """The same runs, whether a `workflow:` step or a handler has started them; theirs are named too."""
    run = family(kit, workflow, {"a": "external:mail; fail_until:mended"}, **do)
    assert (run.state, run.cause) == ("failed", "child_failed")
    before = below(run)
    assert set(before) == {"failed"}
    assert effects(run)[1] == {"mail": len(before)}
    kit.retry(run)
    settle(kit)
    assert (kit.run(run.pk).state, below(run)) == ("failed", before), "they have failed again, and it with them"
    kit.ledger.open("mended")
    kit.retry(run)
    settle(kit)
    assert (kit.run(run.pk).state, below(run)) == ("done", ["done"] * len(before))


def test_a_step_that_was_undone_has_new_children_and_the_old_ones_count_no_more(kit):
    run = family(kit, "family", {"a": "external:mail; fail_until:mended"}, s="submit:1")
    assert (run.state, run.cause, run.compensation, below(run)) == ("failed", "child_failed", "done", ["failed"])
    assert effects(run)[1] == {"mail": 1}
    kit.ledger.open("mended")
    kit.retry(run)
    settle(kit)
    assert (kit.run(run.pk).state, below(run)) == ("done", ["failed", "done", "done"])
    assert Step.objects.get(run=run, step="s").generation == 1
