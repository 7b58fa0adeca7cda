"""Runs of a video-upload workflow in any stage, written straight to the tables by the ORM.

Test code: it writes states itself, which the product leaves to ``engine.transitions``, and keeps the counters of run
and fan-outs in step with the rows. ``make("retrying")`` answers a saved run; ``STAGES`` names all that there are.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from orchestrator.core.states import Cause, Kind, RunState, StepState, StopReason, Undo, WaitingFor
from orchestrator.models import Run, Step
from tests.harness.build import ERROR, Build
from tests.harness.specs import definition, lease, step_spec, video_spec, workflow_spec

__all__ = ["ERROR", "STAGES", "Build", "definition", "lease", "make", "step_spec", "video_spec", "workflow_spec"]

SHARDS = ("1080p", "720p", "480p")
PROBED = {"width": 1920, "height": 1080, "seconds": 634.5, "renditions": list(SHARDS)}


def _begin(**run: Any) -> Build:
    build = Build(**run)
    ago = (build.now - build.run.submitted_at).total_seconds()
    build.audit("submit", ago=ago, actor=build.run.submitted_by, role="operator")
    build.done("probe", ago=ago, secs=4, output=PROBED)
    return build


def _transcoded(build: Build, ago: float) -> None:
    for index, shard in enumerate(SHARDS):
        build.done("transcode", shard, ago=ago, secs=80 - 20 * index, output={"key": f"renditions/{shard}.mp4"})


def _block(build: Build, *steps: str) -> None:
    for step in steps:
        build.row(step, StepState.SKIPPED, cause=Cause.BLOCKED)


def _undo(build: Build, states: dict[str, str], *, ago: float = 60.0) -> None:
    """Compensation rows: delete_rendition per shard in reverse, release_storage_quota, purge_cdn, in these states."""
    victims = [r for r in reversed(build.rows) if r.kind == Kind.STEP and r.attempt > 0]
    names = {"transcode": "delete_rendition", "probe": "release_storage_quota"}
    targets: list[tuple[str, Step | None]] = [(names[r.step], r) for r in victims if r.step in names]
    for order, (name, victim) in enumerate([*targets, ("purge_cdn", None)]):
        shard = victim.shard if victim else ""
        state = states.get(f"{name}:{shard}") or states.get(name, StepState.DONE)
        start = build.at(ago - order)
        values: dict[str, Any] = {"kind": Kind.COMPENSATION, "undoes": victim, "ordinal": order, "max_attempts": 4}
        if victim is None:
            values["undoes_steps"] = [s["id"] for s in build.spec["steps"]]
        if state in (StepState.DONE, StepState.FAILED):
            values |= {"started_at": start, "first_started_at": start, "attempt": 1, "worker": "default-1"}
            values["finished_at"] = start + timedelta(seconds=1)
            if victim:
                victim.undone_at = values["finished_at"]
        if state == StepState.FAILED:
            values |= {
                "cause": Cause.ERROR,
                "error": {**ERROR, "type": "PermissionError", "message": "bucket is sealed"},
            }
            values["attempt"] = 4
        if state == StepState.RUNNING:
            values |= {"lease_id": lease("default-1", ["default"]).pk, "started_at": start, "first_started_at": start}
            values["attempt"] = 1
        row = build.row(name, state, shard, **values)
        if state == StepState.FAILED:
            build.dead_letter(row)


def queued(**run: Any) -> Run:
    """Submitted 50 s ago, the first step waits for a worker; none serves its queue."""
    build = Build(**{"ago": 50.0, "started_at": None, **run})
    build.audit("submit", ago=50, actor="uploads-api", role="operator")
    build.row("probe", StepState.QUEUED, ready_at=build.at(50), created_at=build.at(50))
    return build.save()


def delayed(**run: Any) -> Run:
    """Not due for another hour."""
    build = Build(**{"ago": 20.0, "started_at": None, "deadline_at": None, **run})
    build.run.available_at = build.at(-3600)
    build.audit("submit", ago=20, actor="uploads-api", role="operator")
    return build.save()


def mid_fan_out(**run: Any) -> Run:
    """One rendition done, one running with a progress note, one queued."""
    build = _begin(**run)
    build.done("transcode", "1080p", ago=590, secs=300, output={"key": "renditions/1080p.mp4"})
    build.running("transcode", "720p", ago=290, progress=0.4, note="segment 12 of 30")
    build.row("transcode", StepState.QUEUED, "480p", ready_at=build.at(200))
    build.done("captions", ago=595, secs=30)
    return build.save()


def retrying(**run: Any) -> Run:
    """Two renditions done, 480p failed twice and waits 42 s for its third attempt."""
    build = _begin(**run)
    build.done("transcode", "1080p", ago=590, secs=300, output={"key": "renditions/1080p.mp4"})
    build.done("transcode", "720p", ago=590, secs=250, output={"key": "renditions/720p.mp4"})
    row = build.row(
        "transcode",
        StepState.WAITING,
        "480p",
        waiting_for=WaitingFor.RETRY,
        ready_at=build.at(-42),
        attempt=2,
        started_at=build.at(300),
        worker="media-heavy-1",
    )
    build.failed_attempts(row, 2, ago=500)
    build.done("captions", ago=595, secs=30)
    return build.save()


def approving(**run: Any) -> Run:
    """All but notify is done; an editor has to approve."""
    build = _begin(**run)
    _transcoded(build, 590)
    build.done("captions", ago=595, secs=30)
    build.done("thumbnail", ago=400, secs=12, output={"key": "thumbs/sprite.jpg"})
    build.row(
        "approve",
        StepState.WAITING,
        waiting_for=WaitingFor.APPROVAL,
        waiting_name="editors",
        ready_at=build.at(-172000),
        created_at=build.at(380),
        first_started_at=build.at(380),
    )
    return build.save()


def done(**run: Any) -> Run:
    """Ended well, 40 s ago."""
    build = _begin(**run)
    _transcoded(build, 590)
    build.done("captions", ago=595, secs=30)
    build.done("thumbnail", ago=400, secs=12, output={"key": "thumbs/sprite.jpg"})
    build.done("approve", ago=380, secs=300, output={"approved_by": "mara"})
    build.done("notify", ago=60, secs=20, output={"mail": "sent"})
    build.end(RunState.DONE, ago=40, output={"mail": "sent"})
    return build.save()


def _failing(**run: Any) -> Build:
    build = _begin(**run)
    build.done("transcode", "1080p", ago=590, secs=300, output={"key": "renditions/1080p.mp4"})
    build.done("transcode", "720p", ago=590, secs=250, output={"key": "renditions/720p.mp4"})
    row = build.row(
        "transcode",
        StepState.FAILED,
        "480p",
        cause=Cause.ERROR,
        attempt=4,
        started_at=build.at(200),
        finished_at=build.at(90),
        worker="media-heavy-1",
    )
    build.failed_attempts(row, 4, ago=500)
    build.dead_letter(row)
    build.done("captions", ago=595, secs=30)
    _block(build, "thumbnail", "approve", "notify")
    build.run.stop, build.run.stopped_at, build.run.cause = StopReason.FAILURE, build.at(90), Cause.ERROR
    build.run.error = {"type": ERROR["type"], "message": ERROR["message"], "step": "transcode", "shard": "480p"}
    build.run.current_step = "transcode"
    build.audit("state", ago=90, before={"state": "running"}, after={"state": "compensating", "cause": "error"})
    return build


def compensating(**run: Any) -> Run:
    """480p failed for good; two undos are done, one runs, the rest wait."""
    build = _failing(**run)
    states = {"delete_rendition:1080p": StepState.RUNNING, "release_storage_quota": StepState.PENDING}
    _undo(build, {**states, "purge_cdn": StepState.PENDING})
    build.run.state, build.run.compensation = RunState.COMPENSATING, Undo.RUNNING
    return build.save()


def failed(**run: Any) -> Run:
    """480p failed for good and everything was undone."""
    build = _failing(**run)
    _undo(build, {})
    build.end(RunState.FAILED, ago=30, compensation=Undo.DONE)
    return build.save()


def partial(**run: Any) -> Run:
    """480p failed for good, and one undo failed too."""
    build = _failing(**run)
    _undo(build, {"delete_rendition:720p": StepState.FAILED})
    build.end(RunState.FAILED, ago=30, compensation=Undo.PARTIAL)
    return build.save()


def cancelled(**run: Any) -> Run:
    """Cancelled by a person while transcoding, and undone."""
    build = _begin(**run)
    build.done("transcode", "1080p", ago=590, secs=300)
    for shard in ("720p", "480p"):
        build.row(
            "transcode",
            StepState.CANCELLED,
            shard,
            cause=Cause.CANCELLED,
            attempt=1,
            started_at=build.at(290),
            first_started_at=build.at(290),
            finished_at=build.at(100),
        )
    build.done("captions", ago=595, secs=30)
    _block(build, "thumbnail", "approve", "notify")
    _undo(build, {}, ago=95)
    build.run.stop, build.run.stopped_at, build.run.cause = StopReason.CANCEL, build.at(110), Cause.CANCELLED
    build.run.cancel_requested_at = build.at(110)
    build.run.current_step = "transcode"
    build.audit("cancel", ago=110, actor="mara.lindt", role="operator", reason="customer withdrew the upload")
    build.end(RunState.CANCELLED, ago=60, compensation=Undo.DONE)
    return build.save()


def overdue(**run: Any) -> Run:
    """Still transcoding three minutes after its deadline."""
    build = _begin(**{"ago": 7380.0, **run})
    for shard in SHARDS:
        build.running("transcode", shard, ago=7000)
    build.done("captions", ago=7370, secs=30)
    build.run.deadline_missed_at = build.at(180)
    return build.save()


def wide(total: int = 5000, **run: Any) -> Run:
    """A fan-out of ``total`` shards: half done, some running, ten failed once, the rest queued and pending."""
    names = [f"shard-{n:05d}" for n in range(total)]
    build = _begin(**{"spec": video_spec(version=4, shards=names), **run})
    one = lease("media-heavy-1")
    for number, name in enumerate(names):
        if number < total // 2:
            build.done("transcode", name, ago=590 - 500 * number / total, secs=2, ordinal=number)
        elif number < total // 2 + 20:
            row = build.row("transcode", StepState.RUNNING, name, ordinal=number, lease_id=one.pk, worker=one.name)
            row.started_at = row.first_started_at = build.at(3)
        elif number < total // 2 + 30:
            row = build.row(
                "transcode",
                StepState.WAITING,
                name,
                ordinal=number,
                waiting_for=WaitingFor.RETRY,
                ready_at=build.at(-30),
                attempt=1,
                started_at=build.at(40),
                error=ERROR,
            )
            build.failed_attempts(row, 1, ago=40, secs=10)
        else:
            state = StepState.QUEUED if number < total // 2 + 500 else StepState.PENDING
            build.row("transcode", state, name, ordinal=number, ready_at=build.at(20))
    build.done("captions", ago=595, secs=30)
    build.run.current_step = "transcode"
    return build.save()


STAGES: dict[str, Callable[..., Run]] = {
    "delayed": delayed,
    "queued": queued,
    "mid_fan_out": mid_fan_out,
    "retrying": retrying,
    "approving": approving,
    "done": done,
    "compensating": compensating,
    "failed": failed,
    "partial": partial,
    "cancelled": cancelled,
    "overdue": overdue,
    "wide": wide,
}


def make(stage: str, **run: Any) -> Run:
    """A saved run in one of :data:`STAGES`; keyword arguments go to :class:`Build` (``subject``, ``ago``, columns)."""
    return STAGES[stage](**run)
