"""Rows that keep the machinery going: outbox, leases, leadership, counters for metrics."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Now


class Outbox(models.Model):
    """A ticket to be published to RQ. Written in the transaction that made the step ready; deleted when relayed."""

    run_id = models.UUIDField()
    definition_id = models.BigIntegerField()
    step = models.TextField()
    queue = models.TextField()
    tickets = models.IntegerField(db_default=1, help_text="How many workers the step can use at once.")
    gated = models.BooleanField(db_default=False, help_text="The step needs a topic's slot or a lock.")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "workflow_outbox"
        verbose_name = "outbox row"
        verbose_name_plural = "outbox"
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.step} on {self.queue}"


class Lease(models.Model):
    """One worker process, alive while ``expires_at`` is ahead. Running steps point to it.

    Liveness is per process start (``token``), never per name: a process that comes back under the same name does
    not vouch for its predecessor's work.
    """

    id = models.BigAutoField(primary_key=True)
    token = models.UUIDField(unique=True)
    name = models.TextField()
    host = models.TextField()
    pid = models.IntegerField()
    queues = ArrayField(models.TextField())
    workflows = models.TextField(db_default="", help_text="ORCHESTRATOR_WORKFLOWS that the process has loaded.")
    started_at = models.DateTimeField(db_default=Now())
    heartbeat_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "workflow_leases"
        verbose_name = "worker process"
        verbose_name_plural = "worker processes"
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Beat(models.Model):
    """Who leads a duty (the dispatcher) and when it was last seen. Leadership only saves work."""

    name = models.TextField(primary_key=True)
    holder = models.TextField(db_default="")
    beat_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField(db_default=Now())
    detail = models.JSONField(default=dict)

    class Meta:
        db_table = "workflow_beats"

    def __str__(self) -> str:
        return f"{self.name}: {self.holder}"


class RollupDelta(models.Model):
    """An increment of a counter, appended in the transaction that caused it and folded into :class:`Rollup`."""

    metric = models.TextField()
    labels = models.JSONField(default=dict)
    value = models.FloatField()

    class Meta:
        db_table = "workflow_rollup_deltas"

    def __str__(self) -> str:
        return f"{self.metric} +{self.value}"


class Rollup(models.Model):
    """A counter that never goes down while the database lives, whatever is pruned or restarted."""

    metric = models.TextField()
    labels = models.JSONField(default=dict)
    value = models.FloatField()

    class Meta:
        db_table = "workflow_rollups"
        constraints = [models.UniqueConstraint(fields=["metric", "labels"], name="workflow_rollups_metric_labels_key")]

    def __str__(self) -> str:
        return f"{self.metric} {self.value}"


class RollupHour(models.Model):
    """What a counter rose by within one hour, for the charts; kept for some weeks.

    The hour is that of the fold, a few seconds after the event while a dispatcher runs.
    """

    metric = models.TextField()
    labels = models.JSONField(default=dict)
    hour = models.DateTimeField(help_text="Beginning of the hour.")
    value = models.FloatField()

    class Meta:
        db_table = "workflow_rollup_hours"
        constraints = [
            models.UniqueConstraint(fields=["hour", "metric", "labels"], name="workflow_rollup_hours_hour_metric_key")
        ]

    def __str__(self) -> str:
        return f"{self.metric} +{self.value} in {self.hour:%Y-%m-%d %H}:00"
