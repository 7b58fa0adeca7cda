"""Executable rows of a run: steps, shards of a fan-out, and compensations."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from orchestrator.core.states import STEP_TERMINAL, Cause, Kind, StepState, WaitingFor

TERMINAL = sorted(STEP_TERMINAL)


class Step(models.Model):
    """One executable row: a plain step (``shard`` empty), a shard of a fan-out, or a compensation.

    Made when it becomes ready. ``token`` is random for each claim; (state, attempt, token) guard every close.
    A fan-out has no row of its own here: its counters are in :class:`FanOut`.
    """

    run = models.ForeignKey("orchestrator.Run", on_delete=models.CASCADE, related_name="steps", db_index=False)
    step = models.TextField(help_text="Id of the step; of a compensation, its name.")
    shard = models.TextField(db_default="", help_text="The item as text, or its index; empty without a fan-out.")
    ordinal = models.IntegerField(db_default=0, help_text="Index in the fan-out, or order of a compensation.")
    kind = models.TextField(choices=[(k, k) for k in Kind], db_default=Kind.STEP)
    state = models.TextField(choices=[(s, s) for s in StepState], db_default=StepState.PENDING)
    cause = models.TextField(null=True, choices=[(c, c) for c in Cause])
    waiting_for = models.TextField(null=True, choices=[(w, w) for w in WaitingFor])
    waiting_name = models.TextField(null=True)
    attempt = models.IntegerField(db_default=0)
    max_attempts = models.IntegerField(db_default=1)
    generation = models.IntegerField(db_default=0, help_text="How often the row was undone and made ready again.")
    queue = models.TextField(db_default="default")
    item = models.JSONField(null=True)
    output = models.JSONField(null=True)
    output_ref = models.TextField(null=True, help_text="Artifact that holds an output over the inline limit.")
    error = models.JSONField(null=True, help_text="{type, message, traceback} of the last attempt that failed.")
    progress = models.FloatField(null=True)
    note = models.TextField(null=True, help_text="What the handler last said of its progress.")
    log = models.TextField(null=True, help_text="What the handler logged, the newest 20,000 characters.")
    external = models.TextField(null=True, help_text="Calls to the outside that its attempts have marked, one a line.")
    topic = models.TextField(null=True)
    lock_name = models.TextField(null=True)
    undoes = models.ForeignKey(
        "self",
        null=True,
        on_delete=models.CASCADE,
        related_name="undone_by",
        db_index=False,
        help_text="Row that it undoes.",
    )
    undoes_steps = ArrayField(models.TextField(), null=True, help_text="Steps that an on_failure entry undoes.")
    undone_at = models.DateTimeField(null=True, help_text="When its undo ended, well or not; a retry runs it again.")
    lease_id = models.BigIntegerField(null=True, help_text="Lease of the worker process that runs it.")
    worker = models.TextField(null=True, help_text="Name of the worker process of the last attempt.")
    token = models.BigIntegerField(null=True)
    created_at = models.DateTimeField(db_default=Now())
    ready_at = models.DateTimeField(null=True, help_text="Queued: since when. Waiting: until when.")
    first_started_at = models.DateTimeField(null=True)
    started_at = models.DateTimeField(null=True, help_text="Start of the latest attempt.")
    finished_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "workflow_steps"
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["run", "step", "shard"], name="workflow_steps_run_step_shard_key"),
            models.CheckConstraint(
                condition=Q(state__in=TERMINAL, finished_at__isnull=False)
                | (~Q(state__in=TERMINAL) & Q(finished_at__isnull=True)),
                name="workflow_steps_terminal_is_finished",
            ),
            models.CheckConstraint(
                condition=Q(state=StepState.RUNNING, token__isnull=False, lease_id__isnull=False)
                | (~Q(state=StepState.RUNNING) & Q(token__isnull=True, lease_id__isnull=True)),
                name="workflow_steps_running_is_claimed",
            ),
            models.CheckConstraint(
                condition=Q(state=StepState.WAITING, waiting_for__isnull=False)
                | (~Q(state=StepState.WAITING) & Q(waiting_for__isnull=True)),
                name="workflow_steps_waiting_says_for_what",
            ),
            models.CheckConstraint(condition=Q(state__in=list(StepState)), name="workflow_steps_state_known"),
        ]
        indexes = [
            models.Index(fields=["run", "step", "ordinal"], name="workflow_steps_queued", condition=Q(state="queued")),
            models.Index(
                fields=["run", "step", "ordinal"], name="workflow_steps_pending", condition=Q(state="pending")
            ),
            models.Index(fields=["queue", "ready_at"], name="workflow_steps_stale", condition=Q(state="queued")),
            models.Index(
                fields=["ready_at"], name="workflow_steps_due", condition=Q(state="waiting", ready_at__isnull=False)
            ),
            models.Index(
                fields=["waiting_for", "ready_at"], name="workflow_steps_waiting", condition=Q(state="waiting")
            ),
            models.Index(fields=["lease_id"], name="workflow_steps_leased", condition=Q(state="running")),
            models.Index(
                fields=["topic"], name="workflow_steps_topic", condition=Q(topic__isnull=False) & ~Q(state__in=TERMINAL)
            ),
            models.Index(
                fields=["lock_name"],
                name="workflow_steps_lock",
                condition=Q(lock_name__isnull=False) & ~Q(state__in=TERMINAL),
            ),
            models.Index(fields=["undoes"], name="workflow_steps_undoes", condition=Q(undoes__isnull=False)),
            models.Index(
                F("finished_at").desc(), name="workflow_steps_failed", condition=Q(state__in=["failed", "rejected"])
            ),
        ]

    def __str__(self) -> str:
        return f"{self.step}[{self.shard}]" if self.shard else self.step


class CompensationManager(models.Manager["Compensation"]):
    """Only the rows that undo."""

    def get_queryset(self) -> models.QuerySet[Compensation]:
        """Django's hook."""
        return super().get_queryset().filter(kind=Kind.COMPENSATION)


class Compensation(Step):
    """A step that undoes: the same claim, lease, retries and dead letters, with its own place in the admin."""

    objects: ClassVar[CompensationManager] = CompensationManager()

    class Meta:
        proxy = True
        verbose_name = "compensation"


class FanOut(models.Model):
    """Counters of one fan-out of one run. They go down only by the rows that a guarded update really changed."""

    run = models.ForeignKey("orchestrator.Run", on_delete=models.CASCADE, related_name="fan_outs", db_index=False)
    step = models.TextField()
    total = models.IntegerField()
    open = models.IntegerField(help_text="Shards that are not terminal.")
    done = models.IntegerField(db_default=0)
    skipped = models.IntegerField(db_default=0)
    failed = models.IntegerField(db_default=0)
    cancelled = models.IntegerField(db_default=0)
    window = models.IntegerField(help_text="Shards released and not terminal, at most.")
    join_due_at = models.DateTimeField(null=True, help_text="When the join goes on with what has completed by then.")

    class Meta:
        db_table = "workflow_fan_outs"
        verbose_name = "fan-out"
        indexes = [
            models.Index(
                fields=["join_due_at"],
                name="workflow_fan_outs_due",
                condition=Q(join_due_at__isnull=False, open__gt=0),
            )
        ]
        constraints = [
            models.UniqueConstraint(fields=["run", "step"], name="workflow_fan_outs_run_step_key"),
            models.CheckConstraint(
                condition=Q(open__gte=0) & Q(total=F("open") + F("done") + F("skipped") + F("failed") + F("cancelled")),
                name="workflow_fan_outs_counts_agree",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.step}: {self.total - self.open} of {self.total}"
