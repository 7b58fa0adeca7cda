"""The door through which every face (pages, admin, API, command line) acts, and the only one.

Each action checks the role, asks for a reason, looks at the present state under the run's lock, and leaves an audit
record with before and after, all in one transaction with what it changes.
"""

from __future__ import annotations

from orchestrator.core.actor import Actor
from orchestrator.engine.incidents import note_incident
from orchestrator.engine.operate_dead_letters import (
    discard_dead_letter,
    replay_dead_letter,
    replay_dead_letters,
    settle_dead_letter,
    settle_undos,
)
from orchestrator.engine.operate_notes import add_note, extend_run, hold_run, share_run
from orchestrator.engine.operate_runs import (
    CancelPreview,
    UndoItem,
    cancel_run,
    preview_cancel,
    preview_retry,
    retry_run,
)
from orchestrator.engine.operate_start import start_run
from orchestrator.engine.operate_steps import approve_step, reject_step, skip_step
from orchestrator.engine.pauses import pause, resume
from orchestrator.engine.retire import restore_version, retire_version
from orchestrator.engine.retry import RetryItem, RetryPreview
from orchestrator.engine.schedules import pause_schedule, resume_schedule, run_schedule_now

__all__ = [
    "Actor",
    "CancelPreview",
    "RetryItem",
    "RetryPreview",
    "UndoItem",
    "add_note",
    "approve_step",
    "cancel_run",
    "discard_dead_letter",
    "extend_run",
    "hold_run",
    "note_incident",
    "pause",
    "pause_schedule",
    "preview_cancel",
    "preview_retry",
    "reject_step",
    "replay_dead_letter",
    "replay_dead_letters",
    "restore_version",
    "resume",
    "resume_schedule",
    "retire_version",
    "retry_run",
    "run_schedule_now",
    "settle_dead_letter",
    "settle_undos",
    "share_run",
    "skip_step",
    "start_run",
]
