"""A batch whose first item turns out long: what has not begun goes back, also when the answer to that is lost."""

from __future__ import annotations

import psycopg
import pytest

from orchestrator.engine import leases
from tests.harness.wait import wait_until


@pytest.mark.parametrize("lost", [0, 1, 4])
def test_what_was_given_back_is_not_run_here_too(kit, monkeypatch, lost):
    run = kit.go("dynamic", {"l": {"emit": list(range(60))}})
    assert run.state == "done"
    real, answers = leases.give_back, []

    def give_back(conn, fences):
        answers.append(real(conn, fences) if not 0 < len(answers) < lost else 0)
        if len(answers) <= lost:
            raise psycopg.OperationalError("the connection is lost, once after the commit")
        return answers[-1]

    monkeypatch.setattr(leases, "give_back", give_back)
    run = kit.go("dynamic", {"l": {"emit": list(range(20))}, "f/0": "sleep:1"})
    assert run.state == "done"
    assert answers and answers[0] > 0, "the batch was not taken apart"
    wait_until(lambda: len(answers) > lost)
    assert [kit.ledger.calls(f"f/{i}", run.pk) for i in range(20)] == [1] * 20
    assert set(run.steps.values_list("attempt", flat=True)) == {1}


def test_one_that_cannot_be_given_back_holds_up_no_other(kit, monkeypatch):
    run = kit.go("dynamic", {"l": {"emit": list(range(60))}})
    real, bad = leases.give_back, []

    def give_back(conn, fences):
        bad.append(fences[0]) if not bad else None
        if bad[0] in fences and len(bad) < 4:
            bad.append(None)
            raise ValueError("a record that cannot be read")
        return real(conn, fences)

    monkeypatch.setattr(leases, "give_back", give_back)
    run_id = kit.submit("dynamic", {"l": {"emit": list(range(20))}, "f/0": "sleep:0.6"})
    kit.worker.work()
    wait_until(lambda: kit.worker.work() or kit.run(run_id).state == "done")
    run = kit.run(run_id)
    assert [kit.ledger.calls(f"f/{i}", run.pk) for i in range(20)] == [1] * 20
    assert set(run.steps.values_list("attempt", flat=True)) == {1}
