"""What happens in the made-up shop, how often, and how long it takes: every kind of run there is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from orchestrator.core.states import Cause, NodeState, RunState, StepState, StopReason, Undo, WaitingFor
from orchestrator.engine.plans import Plan
from orchestrator.testing.demo.outline import (
    STOP,
    Outline,
    Row,
    block,
    break_down,
    fill,
    letter,
    rows_of,
    spans,
    stumble,
    undo,
)
from orchestrator.testing.demo.workflows import Key

Plans = dict[Key, Plan]
VIDEO3, VIDEO4, ORDER = ("video-ingest", 3), ("video-ingest", 4), ("order-fulfilment", 7)
REFUND, REPORT, CLOSURE = ("refund", 2), ("regional-report", 1), ("account-closure", 3)
BOOK, PRINT, MAILING = ("photo-book", 1), ("print-job", 1), ("mailing", 1)
WEIGHTS: dict[str, dict[str, float]] = {
    "video-ingest": {"probe": 0.5, "transcode": 8, "thumbnail": 1, "notify": 0.3},
    "order-fulfilment": {"reserve": 0.2, "charge": 0.3, "approve": 0.2, "pick": 6, "ship": 3, "invoice": 0.3},
    "mailing": {"send": 20},
    "photo-book": {"print": 6},
}
LENGTHS: dict[str, tuple[float, float]] = {
    "video-ingest": (180, 2400), "order-fulfilment": (900, 14400), "refund": (4, 90), "regional-report": (960, 1500),
    "account-closure": (20, 400), "photo-book": (600, 5400), "print-job": (300, 3600), "mailing": (300, 2400),
}  # fmt: skip
DISK = {"type": "OSError", "message": "[Errno 28] No space left on device: /scratch/video-{n}/segment.ts",
        "traceback": 'Traceback (most recent call last):\n  File "transcode.py", line 88, in transcode\n'}  # fmt: skip
CODEC = {"type": "InvalidDataError", "message": "could not find codec parameters for stream {n}"}
DECLINED = {"type": "PaymentDeclined", "message": "card ending 4{n} was declined by the issuer"}
CARRIER = {"type": "ConnectTimeout", "message": "carrier API did not answer within 30 s, parcel {n}"}
BANK = {"type": "HTTPError", "message": "503 Service Unavailable from the bank for transfer {n}"}
LOST = {"type": "WorkerLost", "message": "the worker process was killed (out of memory?)"}
LATE = {"type": "Timeout", "message": "ran for longer than its timeout of 30m"}


def outline(plans: Plans, key: Key, name: str, weight: float, **values: Any) -> Outline:
    """An outline of the workflow with its usual length."""
    length = values.pop("length", LENGTHS[key[0]])
    return Outline(f"{key[0]}-{key[1]}: {name}", plans[key], weight, length, **values)


def ended(plans: Plans) -> list[Outline]:
    """Kinds of runs that are over."""
    found: list[Outline] = []
    for key, weight in ((VIDEO4, 22.0), (VIDEO3, 6.0), (ORDER, 44.0), (REFUND, 7.0), (REPORT, 1.0), (CLOSURE, 2.0),
                        (BOOK, 1.2), (MAILING, 0.05)):  # fmt: skip
        found.append(well(plans, key, weight))
    found += [
        well(plans, VIDEO4, 1.5, "second try", lambda rows: stumble(rows[1], 1, Cause.ERROR, DISK)),
        well(plans, ORDER, 2.0, "carrier away", lambda rows: stumble(rows[4], 2, Cause.ERROR, CARRIER)),
        well(plans, REFUND, 0.6, "worker lost", lambda rows: stumble(rows[1], 1, Cause.WORKER_LOST, LOST)),
        late(plans, 0.4),
        failed(plans, VIDEO4, 1.2, "transcode", Cause.ERROR, DISK, 2),
        failed(plans, VIDEO3, 0.3, "probe", Cause.ERROR, CODEC),
        failed(plans, VIDEO4, 0.2, "transcode", Cause.TIMEOUT, LATE, 0),
        failed(plans, ORDER, 0.7, "charge", Cause.ERROR, DECLINED),
        failed(plans, ORDER, 0.3, "ship", Cause.ERROR, CARRIER),
        failed(plans, ORDER, 0.05, "pick", Cause.WORKER_LOST, LOST, broken=0),
        failed(plans, REFUND, 0.3, "pay_out", Cause.ERROR, BANK),
        discarded(failed(plans, REFUND, 0.3, "pay_out", Cause.ERROR, BANK)),
        discarded(failed(plans, ORDER, 0.4, "charge", Cause.ERROR, DECLINED)),
        stopped(plans, ORDER, 1.0, "pick", by="mara.lindt", reason="customer withdrew the order"),
        stopped(plans, VIDEO4, 0.4, "transcode", by="tom.reyes", reason="wrong file"),
        stopped(plans, ORDER, 0.1, "ship"),
        retried(plans, 0.5),
    ]
    return found


def well(
    plans: Plans, key: Key, weight: float, name: str = "done", but: Callable[[list[Row]], None] | None = None
) -> Outline:
    """Ended well."""
    made = outline(plans, key, name, weight, state=RunState.DONE)
    fill(made, WEIGHTS.get(key[0], {}), skip=("approve",))
    if but:
        but(made.rows)
    made.current = made.plan.nodes[-1].id
    made.move(1.0, "running", "done")
    return made


def late(plans: Plans, weight: float) -> Outline:
    """Ended well, but after its deadline."""
    made = well(plans, VIDEO4, weight, "late")
    made.length, made.missed = (7300, 14000), True
    return made


def failed(
    plans: Plans, key: Key, weight: float, at: str, cause: Cause, error: dict[str, str], shard: int = 0, *,
    broken: int | None = None,
) -> Outline:  # fmt: skip
    """A step failed for good; what was done is undone, but for undo number ``broken``."""
    name = f"{at} {error['type']}{', undo failed' if broken is not None else ''}"
    made = outline(plans, key, name, weight, state=RunState.FAILED)
    _fail(made, key, at, cause, error, shard)
    undo(made, broken=broken)
    if made.compensation:
        made.move(STOP, "running", "compensating", undoing=sum(row.undoes_steps is not None for row in made.rows))
    more = {"compensation": made.compensation} if made.compensation else {}
    was = "compensating" if made.compensation else "running"
    made.move(1.0, was, "failed", cause=cause, **more)
    return made


def _fail(made: Outline, key: Key, at: str, cause: Cause, error: dict[str, str], shard: int) -> None:
    weights = WEIGHTS.get(key[0], {})
    fill(made, weights, upto=at, skip=("approve",))
    span = (spans(made.plan, weights, STOP)[at][0], STOP - 0.002)
    break_down(made, rows_of(made.plan.by_id[at], span, StepState.DONE), shard, cause, error)
    made.current = at
    block(made)


def discarded(made: Outline) -> Outline:
    """The same, given up by somebody."""
    made.name += ", discarded"
    for row in made.rows:
        row.letter = "discarded" if row.letter else None
    reason = "the customer was called; nothing to repeat"
    made.events.append(
        (1.0, "discard", "mara.lindt", "operator", reason, {"state": "open"}, {"dead_letter": "discarded"})
    )
    return made


def stopped(plans: Plans, key: Key, weight: float, at: str, by: str = "", reason: str = "") -> Outline:
    """Cancelled by a person, or caught by its deadline."""
    cause = Cause.CANCELLED if by else Cause.DEADLINE
    state = RunState.CANCELLED if by else RunState.FAILED
    made = outline(plans, key, f"stopped at {at}", weight, state=state, cause=cause)
    made.stop = StopReason.CANCEL if by else StopReason.DEADLINE
    if not by:
        made.length, made.missed = (108_100, 108_300), True
    weights = WEIGHTS.get(key[0], {})
    fill(made, weights, upto=at, skip=("approve",))
    span = (spans(made.plan, weights, STOP)[at][0], STOP)
    made.rows += rows_of(made.plan.by_id[at], span, StepState.CANCELLED, cause=cause)
    made.letters[at], made.current = NodeState.CANCELLED, at
    block(made)
    undo(made)
    if by:
        made.events.append((STOP - 0.002, "cancel", by, "operator", reason, {"state": "running"}, {"stop": "cancel"}))
    made.move(STOP, "running", "compensating")
    made.move(1.0, "compensating", state, cause=cause, compensation="done")
    return made


def retried(plans: Plans, weight: float) -> Outline:
    """Failed, was retried by somebody and ended well."""
    made = well(plans, REFUND, weight, "retried")
    row = made.rows[1]
    stumble(row, 4, Cause.ERROR, BANK)
    row.max_attempts, made.retries = 8, 1
    letter(made, row, "replayed")
    a, b = row.a or 0, row.b or 1
    first = a + (b - a) * 0.8
    reason = "the bank is back"
    made.events = [
        (first, "state", "engine", "", "", {"state": "running"}, {"state": "failed", "cause": "error"}),
        (first, "retry", "tom.reyes", "operator", reason, {"state": "failed"}, {"state": "running"}),
    ]
    made.move(1.0, "running", "done")
    return made


def live(plans: Plans) -> list[Outline]:
    """Kinds of runs that are under way. ``weight`` is how many of a hundred; pairs that share a lock stand together."""
    return [
        at(plans, ORDER, "charge", StepState.RUNNING, name="holds the lock"),
        at(plans, ORDER, "charge", StepState.WAITING, waiting_for=WaitingFor.LOCK, tries=0, a=None, name="wants it",
           waiting_name="account:{account}"),
        at(plans, VIDEO4, "transcode", StepState.RUNNING, progress=0.4, note="segment 12 of 30"),
        at(plans, VIDEO4, "transcode", StepState.QUEUED, name="queued", length=(60, 1500)),
        at(plans, ORDER, "pick", StepState.RUNNING),
        at(plans, ORDER, "ship", StepState.RUNNING),
        at(plans, ORDER, "pick", StepState.QUEUED, name="queued"),
        at(plans, ORDER, "approve", StepState.WAITING, waiting_for=WaitingFor.APPROVAL, waiting_name="managers",
           due=(86400, 170000), tries=0),
        trying(plans, ORDER, "ship", CARRIER, 2),
        trying(plans, VIDEO4, "transcode", DISK, 1),
        at(plans, VIDEO3, "transcode", StepState.WAITING, waiting_for=WaitingFor.TOPIC, waiting_name="gpu", tries=0,
           a=None),
        at(plans, REPORT, "cool_off", StepState.WAITING, waiting_for=WaitingFor.TIMER, due=(600, 900),
           length=(30, 280)),
        at(plans, BOOK, "print", StepState.WAITING, waiting_for=WaitingFor.CHILDREN, waiting_name="started",
           length=(300, 3000)),
        overdue(plans),
        risky(plans),
        delayed(plans),
        undoing(plans),
        held(plans),
        at(plans, REFUND, "check", StepState.QUEUED, length=(2, 25), name="just come"),
        at(plans, VIDEO4, "thumbnail", StepState.RUNNING),
    ]  # fmt: skip


def at(plans: Plans, key: Key, step: str, state: StepState, **values: Any) -> Outline:
    """Stands at a step; of a fan-out the first shard is done already."""
    weights = WEIGHTS.get(key[0], {})
    name = values.pop("name", f"{step} {values.get('waiting_for') or state}")
    made = outline(plans, key, name, 1, length=values.pop("length", (60, 0.7 * LENGTHS[key[0]][1])))
    fill(made, weights, upto=step, skip=("approve",))
    begin = spans(made.plan, weights)[step][0]
    for row in made.rows:  # what is done took its usual share of the time so far
        row.a, row.b = row.a and row.a * 0.9, (row.b or 1) * 0.9
    rows = rows_of(made.plan.by_id[step], (begin * 0.9 + 0.004, 1.0), state, **values)
    if len(rows) > 1:
        rows[0] = rows_of(made.plan.by_id[step], (begin * 0.9 + 0.004, 0.97), StepState.DONE)[0]
    made.rows += rows
    made.letters[step], made.current = NodeState.ACTIVE, step
    return made


def trying(plans: Plans, key: Key, step: str, error: dict[str, str], tries: int) -> Outline:
    """Waits for its next attempt."""
    made = at(plans, key, step, StepState.WAITING, name=f"{step} retrying", waiting_for=WaitingFor.RETRY,
              due=(900, 3000), cause=Cause.ERROR, error=error, tries=tries, fails=tries,
              fail_cause=Cause.ERROR)  # fmt: skip
    for row in made.rows:
        row.b = 0.99 if row.state == StepState.WAITING else row.b
    return made


def overdue(plans: Plans) -> Outline:
    """Past its deadline, which only alerts."""
    made = at(plans, VIDEO4, "transcode", StepState.RUNNING, name="overdue", length=(7400, 20000))
    made.missed = True
    return made


def risky(plans: Plans) -> Outline:
    """Has stood long in front of its longest step, and its deadline is near."""
    made = at(plans, VIDEO4, "transcode", StepState.RUNNING, name="at risk", length=(6000, 6900))
    for row in made.rows:
        row.a = 0.985 if row.state == StepState.RUNNING else row.a
    return made


def delayed(plans: Plans) -> Outline:
    """Not due yet."""
    return outline(plans, REFUND, "delayed", 1, length=(10, 600), delayed=True)


def undoing(plans: Plans) -> Outline:
    """A step failed for good, and the undo is under way."""
    made = outline(plans, VIDEO4, "undoing", 1, state=RunState.COMPENSATING, length=(400, 2000))
    _fail(made, VIDEO4, "transcode", Cause.ERROR, DISK, 2)
    undo(made, stop_at=2)
    made.move(STOP, "running", "compensating", undoing=5)
    return made


def held(plans: Plans) -> Outline:
    """A step failed for good, and the undo waits for somebody to decide."""
    made = outline(plans, CLOSURE, "held", 1, state=RunState.COMPENSATING, length=(60, 300), hold=True)
    _fail(made, CLOSURE, "erase", Cause.ERROR, {"type": "Conflict", "message": "account {n} has an open order"}, 0)
    made.compensation = Undo.PENDING
    made.move(STOP, "running", "compensating", held=True)
    return made


def wide(plans: Plans, shards: int) -> Outline:
    """One fan-out of thousands, half of it done."""
    made = at(plans, MAILING, "send", StepState.PENDING, name=f"{shards} letters", length=(900, 1000))
    node = made.plan.by_id["send"]
    rows = rows_of(node, (0.1, 0.9), StepState.DONE, shards)
    for number, row in enumerate(rows):
        part = number / shards
        if part >= 0.5:
            state = StepState.RUNNING if number % 100 == 7 and part < 0.54 else StepState.PENDING
            state = StepState.QUEUED if part < 0.53 and state == StepState.PENDING else state
            row.state, row.output, row.progress = state, None, None
            if state != StepState.RUNNING:
                row.a, row.tries = None, 0
    made.rows = [row for row in made.rows if row.step != "send"] + rows
    return made


def children(plans: Plans) -> dict[str, Outline]:
    """Child runs by the state of the row that waits or has waited for them."""
    done = well(plans, PRINT, 1)
    made = outline(plans, PRINT, "child", 1)
    made.rows = rows_of(made.plan.by_id["rip"], (0.1, 1.0), StepState.RUNNING)
    made.letters, made.current = {"rip": NodeState.ACTIVE}, "rip"
    return {"done": done, "waiting": made}
