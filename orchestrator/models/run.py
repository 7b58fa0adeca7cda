"""One run of a workflow for one subject."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex, OpClass
from django.db import models
from django.db.models import F, Func, Q
from django.db.models.functions import Now

from orchestrator.core.states import RUN_TERMINAL, Cause, RunState, StopReason, Undo

TERMINAL = sorted(RUN_TERMINAL)
#: All values of a run's labels as one JSON list, whatever their keys.
LABEL_VALUES = Func(
    F("labels"),
    function="jsonb_path_query_array",
    template="%(function)s(%(expressions)s, '$.*')",
    output_field=models.JSONField(),
)


class Run(models.Model):
    """The run row. Written by ``engine.transitions`` alone; it answers "where is it" without a join.

    ``pending`` counts the run's open rows in ``workflow_steps`` (steps, shards and compensations not yet terminal).
    ``node_states`` holds a letter for each step of the definition (``core.states.NodeState``).
    """

    id = models.UUIDField(primary_key=True)
    definition = models.ForeignKey(
        "orchestrator.Definition", on_delete=models.PROTECT, related_name="runs", db_index=False
    )
    workflow = models.TextField()
    version = models.PositiveIntegerField()
    subject_id = models.TextField()
    labels = models.JSONField(default=dict)
    state = models.TextField(choices=[(s, s) for s in RunState], db_default=RunState.RUNNING)
    cause = models.TextField(null=True, choices=[(c, c) for c in Cause])
    compensation = models.TextField(null=True, choices=[(u, u) for u in Undo])
    stop = models.TextField(
        null=True, choices=[(s, s) for s in StopReason], help_text="Set: nothing new starts in this run."
    )
    force_at = models.DateTimeField(null=True, help_text="Attempts that began before are killed without grace.")
    current_step = models.TextField(db_default="", help_text="The step that became ready last.")
    pending = models.IntegerField(db_default=0)
    node_states = models.TextField(db_default="")
    input = models.JSONField(default=dict)
    output = models.JSONField(null=True)
    output_ref = models.TextField(null=True)
    error = models.JSONField(null=True, help_text="{type, message, step, shard} of the first cause.")
    idempotency_key = models.TextField(null=True)
    exclusive_key = models.TextField(null=True, help_text="Set while the run excludes others of the same key.")
    after_runs = ArrayField(
        models.UUIDField(), null=True, help_text="Runs that must have ended before this one starts."
    )
    lock_name = models.TextField(null=True, help_text="A lock named at submission, for every step of the run.")
    on_lock_conflict = models.TextField(null=True)
    retries = models.IntegerField(db_default=0, help_text="How often people have retried the run.")
    parent_step = models.ForeignKey(
        "orchestrator.Step",
        null=True,
        on_delete=models.PROTECT,
        related_name="children",
        db_constraint=False,
        db_index=False,
    )
    parent_run = models.ForeignKey(
        "self", null=True, on_delete=models.PROTECT, related_name="child_runs", db_index=False
    )
    deadline_seconds = models.FloatField()
    on_deadline = models.TextField(db_default="fail")
    submitted_by = models.TextField(db_default="")
    submitted_at = models.DateTimeField(db_default=Now())
    available_at = models.DateTimeField(null=True, help_text="Delayed runs: when the first step may start.")
    started_at = models.DateTimeField(null=True)
    deadline_at = models.DateTimeField(null=True)
    deadline_missed_at = models.DateTimeField(null=True)
    updated_at = models.DateTimeField(db_default=Now())
    finished_at = models.DateTimeField(null=True)
    cancel_requested_at = models.DateTimeField(null=True)
    stopped_at = models.DateTimeField(null=True, help_text="When ``stop`` was set.")
    hold_until = models.DateTimeField(null=True)

    class Meta:
        db_table = "workflow_runs"
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["workflow", "idempotency_key"],
                condition=Q(idempotency_key__isnull=False),
                name="workflow_runs_idempotency_key",
            ),
            models.CheckConstraint(condition=Q(pending__gte=0), name="workflow_runs_pending_not_negative"),
            models.CheckConstraint(
                condition=Q(state__in=TERMINAL, finished_at__isnull=False, pending=0)
                | (~Q(state__in=TERMINAL) & Q(finished_at__isnull=True)),
                name="workflow_runs_terminal_is_finished",
            ),
            models.CheckConstraint(
                condition=~Q(state=RunState.COMPENSATING) | Q(stop__isnull=False),
                name="workflow_runs_compensating_is_stopped",
            ),
            models.CheckConstraint(condition=Q(state__in=list(RunState)), name="workflow_runs_state_known"),
        ]
        indexes = [
            models.Index(fields=["workflow", "-id"], name="workflow_runs_workflow"),
            models.Index(fields=["state", "-id"], name="workflow_runs_state"),
            models.Index(fields=["subject_id", "-id"], name="workflow_runs_subject"),
            models.Index(fields=["parent_run"], name="workflow_runs_parent", condition=Q(parent_run__isnull=False)),
            models.Index(fields=["deadline_at"], name="workflow_runs_deadline", condition=Q(state=RunState.RUNNING)),
            models.Index(fields=["definition"], name="workflow_runs_pinned", condition=~Q(state__in=TERMINAL)),
            models.Index(fields=["parent_step"], name="workflow_runs_child", condition=Q(parent_step__isnull=False)),
            models.Index(fields=["-finished_at"], name="workflow_runs_finished", condition=Q(state__in=TERMINAL)),
            models.Index(
                fields=["available_at"],
                name="workflow_runs_delayed",
                condition=Q(state=RunState.RUNNING, started_at__isnull=True),
            ),
            models.Index(
                fields=["exclusive_key"], name="workflow_runs_exclusive", condition=Q(exclusive_key__isnull=False)
            ),
            models.Index(
                fields=["stopped_at"],
                name="workflow_runs_stopping",
                condition=Q(stop__isnull=False) & ~Q(state__in=TERMINAL),
            ),
            GinIndex(fields=["labels"], name="workflow_runs_labels", opclasses=["jsonb_path_ops"]),
            # Runs without labels stay out of it, so that they cost nothing.
            GinIndex(
                OpClass(LABEL_VALUES, name="jsonb_path_ops"),
                name="workflow_runs_label_values",
                condition=~Q(labels={}),
            ),
            models.Index(fields=["cause", "-id"], name="workflow_runs_cause", condition=Q(cause__isnull=False)),
            models.Index(fields=["-id"], name="workflow_runs_partial", condition=Q(compensation=Undo.PARTIAL)),
            models.Index(
                fields=["-finished_at"],
                name="workflow_runs_missed",
                condition=Q(state__in=TERMINAL)
                & (Q(deadline_missed_at__isnull=False) | Q(finished_at__gt=models.F("deadline_at"))),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.workflow} {self.subject_id}"
