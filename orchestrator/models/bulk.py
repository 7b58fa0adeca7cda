"""One action on many dead letters or runs, and what became of each of them."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from orchestrator.core.bulk import BulkState, BulkVerb, ItemState, Outcome


class BulkOperation(models.Model):
    """The action and how far it has come. Its set is frozen in :class:`BulkItem` rows when it is made.

    ``done``, ``skipped`` and ``failed`` count those rows; they change in the transaction that changes the item.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    verb = models.TextField(choices=[(v, v) for v in BulkVerb])
    filter = models.JSONField(null=True, help_text="What was looked for; null: the ids were named.")
    reason = models.TextField()
    actor = models.TextField()
    role = models.TextField()
    state = models.TextField(choices=[(s, s) for s in BulkState], db_default=BulkState.RUNNING)
    note = models.TextField(db_default="", help_text="Why it paused by itself.")
    total = models.IntegerField(db_default=0)
    done = models.IntegerField(db_default=0)
    skipped = models.IntegerField(db_default=0)
    failed = models.IntegerField(db_default=0)
    created_at = models.DateTimeField(db_default=Now())
    due_at = models.DateTimeField(db_default=Now(), help_text="When the next item is due: the pace.")
    first_until = models.DateTimeField(null=True, help_text="Until when the others wait for the first one's run.")
    watch_at = models.DateTimeField(db_default=Now(), help_text="When it is looked again what came of the runs.")
    streak = models.IntegerField(db_default=0, help_text="How many in a row failed alike.")
    streak_kind = models.TextField(db_default="", help_text="Fingerprint of those failures.")
    finished_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "workflow_bulk_operations"
        ordering = ["-created_at"]
        constraints = [
            models.CheckConstraint(condition=Q(state__in=list(BulkState)), name="workflow_bulk_state_known"),
            models.CheckConstraint(
                condition=Q(total__gte=models.F("done") + models.F("skipped") + models.F("failed")),
                name="workflow_bulk_counts_within_total",
            ),
        ]
        indexes = [
            models.Index(fields=["due_at"], name="workflow_bulk_due", condition=Q(state=BulkState.RUNNING)),
            models.Index(fields=["-created_at"], name="workflow_bulk_latest"),
        ]

    def __str__(self) -> str:
        return f"{self.verb} {self.total}"


class BulkItem(models.Model):
    """One of the set. ``target`` is the id of a dead letter or run as it was given; it need not exist (any more)."""

    operation = models.ForeignKey(BulkOperation, on_delete=models.CASCADE, related_name="items", db_index=False)
    position = models.IntegerField()
    target = models.TextField()
    run_id = models.UUIDField(null=True, help_text="The run, or that of the dead letter; null: there was none.")
    state = models.TextField(choices=[(s, s) for s in ItemState], db_default=ItemState.PENDING)
    outcome = models.TextField(choices=[(o, o) for o in Outcome], db_default=Outcome.NONE)
    detail = models.TextField(db_default="", help_text="Why it was skipped, how it failed.")
    at = models.DateTimeField(null=True)

    class Meta:
        db_table = "workflow_bulk_items"
        ordering = ["position"]
        constraints = [
            models.UniqueConstraint(fields=["operation", "position"], name="workflow_bulk_items_position_key"),
            models.UniqueConstraint(fields=["operation", "target"], name="workflow_bulk_items_target_key"),
        ]
        indexes = [
            models.Index(
                fields=["operation", "position"],
                name="workflow_bulk_items_pending",
                condition=Q(state=ItemState.PENDING),
            ),
            models.Index(
                fields=["operation", "run_id"], name="workflow_bulk_items_run", condition=Q(state=ItemState.PENDING)
            ),
            models.Index(
                fields=["operation", "position"],
                name="workflow_bulk_items_awaited",
                condition=Q(outcome=Outcome.AWAITED),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.target}: {self.state}"
