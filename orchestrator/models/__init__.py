"""Columns, constraints and indexes of everything that is recorded. No behaviour."""

from orchestrator.models.alert import Alert
from orchestrator.models.bulk import BulkItem, BulkOperation
from orchestrator.models.definition import Definition
from orchestrator.models.history import Attempt, AuditRecord, DeadLetter, Incident
from orchestrator.models.limits import ApiToken, Lock, Pause, Schedule, Topic
from orchestrator.models.plumbing import Beat, Lease, Outbox, Rollup, RollupDelta, RollupHour
from orchestrator.models.run import Run
from orchestrator.models.step import Compensation, FanOut, Step

__all__ = [
    "Alert",
    "ApiToken",
    "Attempt",
    "AuditRecord",
    "Beat",
    "BulkItem",
    "BulkOperation",
    "Compensation",
    "DeadLetter",
    "Definition",
    "FanOut",
    "Incident",
    "Lease",
    "Lock",
    "Outbox",
    "Pause",
    "Rollup",
    "RollupDelta",
    "RollupHour",
    "Run",
    "Schedule",
    "Step",
    "Topic",
]
