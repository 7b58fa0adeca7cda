"""Why a row does not run at this moment, and how one that runs is getting on."""

from __future__ import annotations

from datetime import datetime

from orchestrator.core.mask import mask_text
from orchestrator.core.states import Kind, StepState, WaitingFor
from orchestrator.engine.explain_facts import Facts
from orchestrator.engine.explain_words import (
    at_in,
    clock,
    did,
    error_text,
    in_brackets,
    number,
    span,
    times,
)
from orchestrator.engine.plans import Plan
from orchestrator.engine.versions import is_unserved
from orchestrator.models import Run, Step, Topic

#: What happens when nobody answers an approval in time, by ``on_timeout``.
WITHOUT_AN_ANSWER = {"fail": "the step fails", "approve": "it counts as approved", "skip": "the step is skipped"}


def row_sentence(facts: Facts, row: Step, name: str) -> str:
    """What one open row does or waits for, without the full stop. ``name`` is how the sentence calls it."""
    if row.state == StepState.WAITING:
        tell = _WAITING[WaitingFor(row.waiting_for)] if row.waiting_for else _timer
        return tell(facts, row, name)
    if row.state == StepState.RUNNING:
        return _running(facts, row, name)
    if row.state == StepState.QUEUED:
        since = row.ready_at or row.created_at
        return f"{name} has been queued for {span((facts.now - since).total_seconds())}; {why_queued(facts, row)}"
    return f"{name} is not released yet: the window of its fan-out is full"


def due(row: Step) -> datetime | None:
    """When a waiting row goes on by itself."""
    return row.ready_at if row.state == StepState.WAITING else None


def why_queued(facts: Facts, row: Step) -> str:
    """What a queued row waits for: a pause to end, a worker to come up, or its turn."""
    queue = row.queue
    pause = facts.pause(queue, undo=row.kind == Kind.COMPENSATION)
    if pause is not None:
        what = f"the queue {queue}" if pause.kind == "queue" else f"the workflow {pause.name}"
        reason = in_brackets(pause.reason)
        return f"{what} is paused by {pause.actor} until {clock(pause.until, facts.now)}{reason}"
    workers = facts.workers(queue)
    if not workers:
        return f"no worker serves the queue {queue}"
    if row.note and is_unserved(row.note):
        return row.note
    return f"{number(workers, 'worker serves', 'workers serve')} the queue {queue}"


def _running(facts: Facts, row: Step, name: str) -> str:
    since = span((facts.now - (row.started_at or facts.now)).total_seconds())
    text = f"{name} has been running for {since}"
    if row.attempt > 1:
        text += f", attempt {row.attempt} of {row.max_attempts}"
    if row.progress is not None:
        text += f", at {row.progress:.0%}"
    return f"{text}: {mask_text(row.note)}" if row.note else text


def _retry(facts: Facts, row: Step, name: str) -> str:
    text = f"{name} {did(row.cause)} {times(row.attempt)}{in_brackets(error_text(row.error))}"
    return f"{text} and tries again {at_in(row.ready_at, facts.now) if row.ready_at else 'soon'}"


def _timer(facts: Facts, row: Step, name: str) -> str:
    if row.ready_at is None:
        return f"{name} waits"
    left = (row.ready_at - facts.now).total_seconds()
    return f"{name} waits until {clock(row.ready_at, facts.now)}, in {span(left)}"


def _approval(facts: Facts, row: Step, name: str) -> str:
    since = span((facts.now - (row.first_started_at or row.created_at)).total_seconds())
    text = f"{name} has waited {since} for approval by {row.waiting_name or 'an admin'}"
    without = unanswered(facts.run, facts.plan, row)
    return f"{text}; without an answer by {clock(without[0], facts.now)} {without[1]}" if without else text


def unanswered(run: Run, plan: Plan, row: Step) -> tuple[datetime, str] | None:
    """Until when an approval can be given, and what happens then: the run's own deadline may come first."""
    spec = plan.by_id[row.step].spec.approval if row.step in plan.by_id else None
    ends = run.deadline_at if run.on_deadline == "fail" else None
    if ends is not None and (spec is None or row.ready_at is None or ends < row.ready_at):
        return ends, "the run misses its deadline"
    if spec is None or row.ready_at is None:
        return None
    return row.ready_at, WITHOUT_AN_ANSWER.get(spec.on_timeout, "it goes on")


def _children(facts: Facts, row: Step, name: str) -> str:
    states = row.children.values_list("state", flat=True)[:1000]
    total, done = len(states), sum(state == "done" for state in states)
    if not total:
        return f"{name} waits for its child runs"
    return f"{name} waits for {number(total, 'child run')}, {done:,} done"


def _lock(facts: Facts, row: Step, name: str) -> str:
    lock = row.waiting_name or row.lock_name or ""
    holder = facts.lock_holder(lock)
    if holder is None:
        return f"{name} waits for the lock {lock}, which is free: it is next in turn"
    held = f"{holder.run.workflow} {holder.run.subject_id}, step {holder.step}"
    return f"{name} waits for the lock {lock}, held by {held}"


def _topic(facts: Facts, row: Step, name: str) -> str:
    topic = row.waiting_name or row.topic or ""
    limit = Topic.objects.filter(name=topic).values_list("limit", flat=True).first()
    if limit == 0:
        return f"{name} waits for the topic {topic}, whose limit is 0: it is paused"
    used = facts.topic_running(topic)
    of = "" if limit is None else f" of {limit:,}"
    return f"{name} waits for a slot of the topic {topic}; {used:,}{of} in use"


_WAITING = {
    WaitingFor.RETRY: _retry,
    WaitingFor.TIMER: _timer,
    WaitingFor.APPROVAL: _approval,
    WaitingFor.CHILDREN: _children,
    WaitingFor.LOCK: _lock,
    WaitingFor.TOPIC: _topic,
}
