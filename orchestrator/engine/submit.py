"""Starting runs: durable, in the caller's transaction, once for each idempotency key."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from django.db import connection as django_connection

from orchestrator.core.actor import Actor
from orchestrator.core.errors import Conflict, Invalid
from orchestrator.core.ids import new_run_id
from orchestrator.core.outcomes import Cancelled
from orchestrator.core.states import STEP_TERMINAL
from orchestrator.engine import history, transitions
from orchestrator.engine.advance import open_ready
from orchestrator.engine.ambient import current
from orchestrator.engine.db import Connection, caller_connection, caller_transaction, rows
from orchestrator.engine.edit import Audit, Opening, RunEdit
from orchestrator.engine.exclusive import Refused, key_of, take_turns
from orchestrator.engine.outputs import reader
from orchestrator.engine.plans import Plan, latest_definition, load_plan, remembered_definition
from orchestrator.engine.submission import Known, Submission, check
from orchestrator.engine.unwind import resolve

_NOTIFY_EVERY = 0.02
_notified = {"at": 0.0}
SUBMITTER = Actor("code", "operator")


def submit(
    workflow: str,
    subject_id: str,
    input: Mapping[str, Any] | None = None,  # noqa: A002 - the SDK's word
    *,
    idempotency_key: str | None = None,
    version: int | None = None,
    deadline: str | float | timedelta | None = None,
    delay: str | float | timedelta | None = None,
    after: Iterable[UUID | str] | None = None,
    parent: Any = None,
    labels: Mapping[str, str] | None = None,
    lock: str | None = None,
    on_lock_conflict: str | None = None,
    detach: bool = False,
    actor: Actor = SUBMITTER,
) -> UUID:
    """Starts a run and returns its id.

    Inside ``transaction.atomic()`` the run exists if and only if that commits. A repeated idempotency key answers the
    run it made first, even one that has ended.

    Raises:
        NotFound: unknown workflow or version.
        Invalid: an argument that cannot be accepted; ``field`` names it.
        TooLarge: an input over 1 MB.
        Conflict: the same key with other input.
    """
    given = {"workflow": workflow, "subject_id": subject_id, "input": input, "idempotency_key": idempotency_key,
             "version": version, "deadline": deadline, "delay": delay, "after": after, "parent": parent,
             "labels": labels, "lock": lock, "on_lock_conflict": on_lock_conflict, "detach": detach}  # fmt: skip
    return submit_once(actor, **given)[0]


def submit_once(actor: Actor, **arguments: Any) -> tuple[UUID, bool]:
    """As :func:`submit`; also whether the run was made by this call."""
    workflow, version = arguments.get("workflow"), arguments.get("version")
    remembered = remembered_definition(workflow) if version is None and isinstance(workflow, str) else None
    if remembered is None or workflow is None:
        return _started([_checked({}, arguments)], actor)[0]
    request = _checked({(workflow, None): remembered}, arguments)
    made = _in_one_statement(request, actor)
    if made is not None:
        return made, True
    request = replace(request, definition_id=latest_definition(caller_connection(), workflow))
    return _started([request], actor)[0]


def _in_one_statement(request: Submission, actor: Actor) -> UUID | None:
    """The usual submission, which needs no transaction around it; None where it is not made this way."""
    if request.parent or request.delay or request.lock or request.after:
        return None
    if not django_connection.get_autocommit():
        return None
    conn = caller_connection()
    opening = _opening(conn, request)
    if opening.edit is None or opening.exclusive_key:
        return None
    made = transitions.submit_runs(conn, [opening], actor.name, _wakes(), confirm=opening.plan.workflow)
    return opening.id if made else None


def submit_on(conn: Connection, actor: Actor, **arguments: Any) -> tuple[UUID, bool]:
    """As :func:`submit_once`, in the transaction of an engine connection."""
    known: Known = {(arguments["workflow"], None): latest_definition(conn, arguments["workflow"])}
    return _start(conn, [_checked(known, arguments)], actor)[0]


def submit_many(requests: Iterable[Mapping[str, Any]], actor: Actor = SUBMITTER) -> list[UUID]:
    """Starts several runs in one transaction: all of them or none. Each request has :func:`submit`'s arguments."""
    known: Known = {}
    checked = [_checked(known, dict(request)) for request in requests]
    if not checked:
        return []
    return [run_id for run_id, _ in _started(checked, actor)]


def _checked(known: Known, arguments: dict[str, Any]) -> Submission:
    """The request, with the running step as its parent where there is one and ``detach`` does not say otherwise."""
    parent, detach = arguments.pop("parent", None), arguments.pop("detach", False)
    ambient = current.get()
    if parent is None and ambient is not None and not detach:
        parent = (ambient.run_id, ambient.step_id)
        if arguments.get("idempotency_key") is None:
            arguments["idempotency_key"] = ambient.next_key(
                str(arguments.get("workflow")), str(arguments.get("subject_id"))
            )
        ambient.note()
    elif parent is not None and not isinstance(parent, tuple):
        parent = (_run_id(parent), None)
    try:
        return check(known, parent=parent, **arguments)
    except TypeError as problem:
        raise Invalid(f"a submission takes the arguments of submit(): {problem}") from None


def _run_id(parent: Any) -> UUID:
    try:
        return parent if isinstance(parent, UUID) else UUID(str(parent))
    except ValueError:
        raise Invalid("parent is the id of a run", field="parent") from None


def _started(requests: list[Submission], actor: Actor) -> list[tuple[UUID, bool]]:
    """In the caller's transaction. A refusal by ``exclusive`` is recorded, beside what it rolls back."""
    try:
        with caller_transaction() as conn:
            return _start(conn, requests, actor)
    except Refused as refused:
        plan = refused.opening.plan
        before = {"holder": str(refused.holder)}
        after = {"workflow": plan.workflow, "subject_id": refused.opening.subject_id}
        record = Audit.of(actor, "rejected", refused.message, before, after)
        with caller_transaction() as conn:
            history.insert_audit(conn, [(refused.holder, record)])
        raise


def _start(conn: Connection, requests: list[Submission], actor: Actor) -> list[tuple[UUID, bool]]:
    """Makes the runs with their first steps and tickets. For each the run's id, and whether this call made it."""
    requests = [_under_parent(conn, request) for request in requests]
    openings = [_opening(conn, request) for request in requests]
    if any(opening.exclusive_key for opening in openings):
        openings = take_turns(conn, openings)
    made = transitions.submit_runs(conn, openings, actor.name, _wakes())
    for opening in openings:
        if opening.edit is None and opening.id in made and not (opening.delay or opening.held):
            begin(conn, RunEdit.of(transitions.lock_runs(conn, [opening.id])[0], opening.plan))
    return [
        (opening.id, True) if opening.id in made else (_same_run(conn, opening.plan.workflow, request), False)
        for opening, request in zip(openings, requests, strict=True)
    ]


def _under_parent(conn: Connection, request: Submission) -> Submission:
    """A child takes no longer than its parent may. The parent is locked, so no child is made once it stops."""
    if request.parent is None:
        return request
    found = transitions.lock_runs(conn, [request.parent[0]])
    if not found:
        raise Invalid(f"there is no run {request.parent[0]} to be the parent", field="parent")
    if request.parent[1] is None:
        return request
    if found[0].stop:
        raise Cancelled("the run is stopping; it starts no children any more")
    return replace(request, deadline_cap=found[0].deadline_at)


def _opening(conn: Connection, request: Submission) -> Opening:
    """The rows of a new run. A delayed run has none yet; one whose first steps depend on its input gets them after."""
    plan = load_plan(conn, request.definition_id)
    labels = {**plan.spec.labels, **json.loads(request.labels)} if plan.spec.labels else None
    return Opening(
        id=new_run_id(),
        plan=plan,
        subject_id=request.subject_id,
        input=request.input,
        labels=json.dumps(labels) if labels else request.labels,
        key=request.idempotency_key,
        deadline=request.deadline if request.deadline is not None else plan.spec.deadline,
        delay=request.delay,
        lock_name=request.lock,
        on_lock_conflict=request.on_lock_conflict,
        parent=request.parent,
        deadline_cap=request.deadline_cap,
        exclusive_key=key_of(plan, request.subject_id),
        after=request.after,
        held=bool(request.after),
        edit=None if request.delay or request.lock or request.after else _first_steps(plan),
    )


_first: dict[int, RunEdit | None] = {}


class _DependsOnInput(Exception):
    """The first steps cannot be known from the definition alone."""


def _first_steps(plan: Plan) -> RunEdit | None:
    """What every run of a definition opens with, worked out once; None where that takes the run's input."""
    if plan.definition_id not in _first:
        edit = RunEdit(_NEW, plan, list(plan.fresh_states))
        edit.candidates.extend(node.index for node in plan.roots)
        try:
            open_ready(edit, _no_reading)
            ended = any(new.state in STEP_TERMINAL for new in edit.new_steps)
            simple = not (edit.stopping or ended or any(f.bulk for f in edit.fan_outs))
        except _DependsOnInput:
            simple = False
        _first[plan.definition_id] = edit if simple else None
    return _first[plan.definition_id]


class _New(SimpleNamespace):
    """Stands for the row of any run of a definition; what differs from run to run is not known."""

    def __getattr__(self, name: str) -> Any:
        raise _DependsOnInput


_NEW = _New(pending=0, retries=0, stop=None, state="running", node_states="", lock_name=None)


def _no_reading(run_id: UUID, node: Any) -> Any:
    raise _DependsOnInput


def begin(conn: Connection, edit: RunEdit) -> None:
    """Opens the first steps of a run that is new or whose time has come."""
    edit.candidates.extend(node.index for node in edit.plan.roots)
    resolve(conn, edit, reader(conn))
    transitions.write(conn, [edit], None, {})


def _same_run(conn: Connection, workflow: str, request: Submission) -> UUID:
    query = """
        SELECT id, input = %s::jsonb AND subject_id = %s AS same FROM workflow_runs
        WHERE workflow = %s AND idempotency_key = %s"""
    found = rows(conn, query, [request.input, request.subject_id, workflow, request.idempotency_key])[0]
    if not found.same:
        raise Conflict(
            f"idempotency key {request.idempotency_key!r} was used for run {found.id} with another subject or input; "
            "use a new key for new work",
            field="idempotency_key",
        )
    run_id: UUID = found.id
    return run_id


def _wakes() -> bool:
    """Whether to wake the dispatcher. Debounced: notifying makes commits queue up behind one another."""
    now = time.monotonic()
    if now - _notified["at"] < _NOTIFY_EVERY:
        return False
    _notified["at"] = now
    return True
