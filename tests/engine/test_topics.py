"""Where a topic's limit comes from: set at run time, else the settings, else the definition; and what it holds."""

from __future__ import annotations

import dataclasses

import pytest

from orchestrator.core.errors import Invalid, NotFound
from orchestrator.engine import topics
from orchestrator.engine.gates import promote_all
from orchestrator.engine.limits import set_topic_limit
from orchestrator.models import AuditRecord, Step, Topic
from tests.engine.conftest import OPERATOR


def configure(settings, **limits):
    settings.ORCHESTRATOR = dataclasses.replace(settings.ORCHESTRATOR, topic_limits=limits)


def told(name="gpu"):
    topic = topics.topic(name)
    return topic["limit"], topic["origin"], topic["defined"], topic["configured"]


def waiting(run_id, count=3):
    return Step.objects.filter(run=run_id, waiting_for="topic").count() == count


def test_the_value_of_run_time_wins_then_the_settings_then_the_definition(kit, settings):
    assert told() == (1, "definition", 1, None)
    configure(settings, gpu=4, fax=2)
    assert told() == (4, "settings", 1, 4)
    assert told("fax") == (2, "settings", None, 2)
    set_topic_limit("gpu", None, OPERATOR, "all cards are free")
    assert told() == (None, "runtime", 1, 4)
    assert topics.topic("gpu")["set_by"] == "olga"
    with pytest.raises(NotFound, match="no topic 'mail'"):
        topics.topic("mail")
    assert {"gpu", "fax", "narrow"} <= {topic["name"] for topic in topics.topics()}


def test_a_limit_of_run_time_can_be_taken_back_and_who_waits_goes_on(kit, settings):
    set_topic_limit("gpu", 0, OPERATOR, "cards are down")
    run_id = kit.submit("topic", {"list": {"emit": [1, 2, 3]}})
    kit.worker.work(until=lambda: waiting(run_id))
    set_topic_limit("gpu", "default", OPERATOR, "cards are back")
    assert (told(), Topic.objects.get(pk="gpu").limit) == ((1, "definition", 1, None), 1)
    kit.worker.work()
    assert kit.run(run_id).state == "done", kit.live.describe(run_id)
    back = AuditRecord.objects.filter(action="topic").latest("id")
    assert (back.before, back.after, back.reason) == (
        {"limit": 0, "set_by": "olga"}, {"limit": 1, "set_by": ""}, "cards are back")  # fmt: skip
    configure(settings, gpu=4)
    set_topic_limit("gpu", None, OPERATOR)
    set_topic_limit("gpu", "default", OPERATOR)
    assert told() == (4, "settings", 1, 4)
    records = AuditRecord.objects.filter(action="topic").count()
    set_topic_limit("gpu", "default", OPERATOR)
    assert AuditRecord.objects.filter(action="topic").count() == records, "nothing was set, so nothing was done"


def test_only_a_topic_that_there_is_has_a_default(kit):
    with pytest.raises(NotFound, match="no topic 'mail'"):
        set_topic_limit("mail", "default", OPERATOR)
    with pytest.raises(Invalid, match="whole number"):
        set_topic_limit("gpu", "loads", OPERATOR)
    assert not Topic.objects.filter(pk="mail").exists()


def test_a_limit_of_the_settings_holds_at_the_claim_and_can_be_raised(kit, settings):
    configure(settings, gpu=0)
    run_id = kit.submit("topic", {"list": {"emit": [1, 2, 3]}})
    kit.worker.work(until=lambda: waiting(run_id))
    assert waiting(run_id) and kit.ledger.calls("a") == 0, kit.live.describe(run_id)
    assert (topics.topic("gpu")["waiting"], Topic.objects.get(pk="gpu").limit) == (3, 0)
    configure(settings, gpu=2)
    assert promote_all(kit.worker.conn) == 2
    kit.worker.work()
    assert kit.run(run_id).state == "done"


def test_a_limit_of_0_that_is_out_of_date_holds_nobody_up_for_ever(kit, settings):
    configure(settings, gpu=0)
    run_id = kit.submit("topic", {"list": {"emit": [1, 2, 3]}})
    kit.worker.work(until=lambda: waiting(run_id))
    configure(settings)
    assert promote_all(kit.worker.conn) == 1
    kit.worker.work()
    assert kit.run(run_id).state == "done" and Topic.objects.get(pk="gpu").limit == 1


def test_a_pause_at_run_time_is_not_lifted_by_looking(kit, settings):
    set_topic_limit("gpu", 0, OPERATOR)
    run_id = kit.submit("topic", {"list": {"emit": [1, 2, 3]}})
    kit.worker.work(until=lambda: waiting(run_id))
    configure(settings, gpu=4)
    assert promote_all(kit.worker.conn) == 0
    assert waiting(run_id)
    set_topic_limit("gpu", 3, OPERATOR)
    kit.worker.work()
    assert kit.run(run_id).state == "done"


def test_locks_that_are_held_or_waited_for(kit):
    first, second = kit.submit("lock"), kit.submit("lock")
    Step.objects.filter(run=first).update(state="running", attempt=1, token=7, lease_id=kit.worker.holder.lease_id)
    kit.worker.step()
    (line,) = topics.locks()
    assert (line.name, line.waiting) == ("item:s-1", 1)
    assert line.holder is not None and line.holder.run_id == first
    kit.worker.lose()
    kit.worker.elapse(10)
    assert {kit.run(first).state, kit.run(second).state} == {"done"}
    assert topics.locks() == []
