"""What happened: attempts that did not succeed, dead letters, and the audit trail."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from orchestrator.core.states import Cause, DeadLetterState


class Attempt(models.Model):
    """One try that did not succeed. A success is on the step row itself."""

    run = models.ForeignKey("orchestrator.Run", on_delete=models.CASCADE, related_name="attempts", db_index=False)
    step_row = models.ForeignKey("orchestrator.Step", on_delete=models.CASCADE, related_name="attempts", db_index=False)
    attempt = models.IntegerField()
    cause = models.TextField(choices=[(c, c) for c in Cause])
    error = models.JSONField(null=True, help_text="{type, message, traceback}")
    worker = models.TextField(null=True)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(db_default=Now())
    retry_at = models.DateTimeField(null=True, help_text="When the next try was due; null: there was none.")

    class Meta:
        db_table = "workflow_attempts"
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["step_row", "attempt"], name="workflow_attempts_step_attempt_key"),
        ]
        indexes = [models.Index(fields=["run", "id"], name="workflow_attempts_run")]

    def __str__(self) -> str:
        return f"attempt {self.attempt}: {self.cause}"


class DeadLetter(models.Model):
    """A permanent failure of one step, shard or compensation: one per row, reopened with a count."""

    run = models.ForeignKey("orchestrator.Run", on_delete=models.CASCADE, related_name="dead_letters", db_index=False)
    step_row = models.OneToOneField("orchestrator.Step", on_delete=models.CASCADE, related_name="dead_letter")
    workflow = models.TextField()
    version = models.PositiveIntegerField()
    step = models.TextField()
    shard = models.TextField(db_default="")
    state = models.TextField(choices=[(s, s) for s in DeadLetterState], db_default=DeadLetterState.OPEN)
    cause = models.TextField(choices=[(c, c) for c in Cause])
    error = models.JSONField(null=True)
    fingerprint = models.TextField(help_text="Step and normalised error: what failed alike has the same.")
    attempts = models.IntegerField()
    count = models.IntegerField(db_default=1, help_text="How often this row has failed for good.")
    first_at = models.DateTimeField(db_default=Now())
    last_at = models.DateTimeField(db_default=Now())
    closed_at = models.DateTimeField(null=True)
    note = models.TextField(db_default="")

    class Meta:
        db_table = "workflow_dead_letters"
        ordering = ["-last_at"]
        indexes = [
            models.Index(fields=["-last_at", "-id"], name="workflow_dead_letters_open", condition=Q(state="open")),
            # Closed ones too, for the list of all.
            models.Index(fields=["-last_at", "-id"], name="workflow_dead_letters_latest"),
            models.Index(fields=["fingerprint", "-last_at"], name="workflow_dead_letters_alike"),
            models.Index(fields=["run"], name="workflow_dead_letters_run"),
        ]

    def __str__(self) -> str:
        return f"{self.workflow} {self.step} {self.shard}".strip()


class Incident(models.Model):
    """What people noted about failures that belong together. Which do is looked up; it is known by its fingerprints."""

    fingerprints = ArrayField(models.TextField(), help_text="Failures that it is about.")
    owner = models.TextField(db_default="", help_text="Who looks after it.")
    note = models.TextField(db_default="")
    fixed_in = models.TextField(db_default="", help_text="What holds the fix: a version, a release, a change.")
    fixed_at = models.DateTimeField(null=True, help_text="What fails alike after this came back.")
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())
    updated_by = models.TextField(db_default="")

    class Meta:
        db_table = "workflow_incidents"
        ordering = ["-id"]
        indexes = [GinIndex(fields=["fingerprints"], name="workflow_incidents_alike")]

    def __str__(self) -> str:
        return f"incident {self.pk}"


class AuditRecord(models.Model):
    """A change of a run's state, or something a person did or was refused: who, why, before and after."""

    run = models.ForeignKey(
        "orchestrator.Run", null=True, on_delete=models.CASCADE, related_name="audit", db_index=False
    )
    subject = models.TextField(db_default="", help_text="What it concerns when it is not a run: a topic, a definition.")
    action = models.TextField(help_text="state, cancel, retry, publish, …")
    actor = models.TextField(db_default="engine")
    role = models.TextField(db_default="")
    reason = models.TextField(db_default="")
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "workflow_audit"
        verbose_name = "audit record"
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["run", "id"], name="workflow_audit_run"),
            models.Index(fields=["-id"], name="workflow_audit_people", condition=~Q(actor="engine")),
            # What people did, without the submissions, of which a busy shop has thousands an hour.
            models.Index(
                fields=["-id"], name="workflow_audit_acts", condition=~Q(actor="engine") & ~Q(action="submit")
            ),
        ]

    def __str__(self) -> str:
        return f"{self.action} by {self.actor}"
