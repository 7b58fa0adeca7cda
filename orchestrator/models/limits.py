"""Topics, locks, schedules and pauses: what holds work back or sets it off."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now


class Topic(models.Model):
    """A cluster-wide limit. What runs is counted from live claims, never kept here."""

    name = models.TextField(primary_key=True)
    limit = models.PositiveIntegerField(null=True, help_text="Empty: unlimited. 0 pauses.")
    set_by = models.TextField(db_default="", help_text="Who set the limit at run time; empty: the definition.")
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "workflow_topics"
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Lock(models.Model):
    """A name to lock on while its holder is looked up. The holder is whichever live claim carries the name."""

    name = models.TextField(primary_key=True)

    class Meta:
        db_table = "workflow_locks"
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Schedule(models.Model):
    """A cron schedule of a workflow and its ledger of ticks: one tick whatever the number of dispatchers."""

    workflow = models.TextField(unique=True)
    cron = models.TextField()
    timezone = models.TextField(db_default="UTC")
    subject = models.TextField()
    overlap = models.TextField(db_default="skip")
    paused = models.BooleanField(db_default=False)
    paused_by = models.TextField(db_default="")
    paused_reason = models.TextField(db_default="")
    next_at = models.DateTimeField(null=True, help_text="The tick to come; empty: none ever does.")
    last_at = models.DateTimeField(null=True, help_text="The tick that fired last.")
    missed = models.IntegerField(db_default=0, help_text="Ticks that passed while no dispatcher fired them.")
    missed_at = models.DateTimeField(null=True)
    skipped = models.IntegerField(db_default=0, help_text="Ticks that started no run because one was live still.")
    skipped_at = models.DateTimeField(null=True)
    last_run = models.ForeignKey("orchestrator.Run", null=True, on_delete=models.SET_NULL, related_name="+")

    class Meta:
        db_table = "workflow_schedules"
        ordering = ["workflow"]

    def __str__(self) -> str:
        return f"{self.workflow} {self.cron}"


class Pause(models.Model):
    """A workflow or queue on which nothing new starts until a time or until resumed."""

    kind = models.TextField(choices=[("workflow", "workflow"), ("queue", "queue")])
    name = models.TextField()
    reason = models.TextField()
    actor = models.TextField()
    created_at = models.DateTimeField(db_default=Now())
    until = models.DateTimeField()

    class Meta:
        db_table = "workflow_pauses"
        constraints = [models.UniqueConstraint(fields=["kind", "name"], name="workflow_pauses_kind_name_key")]

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class ApiToken(models.Model):
    """A bearer token of the HTTP API. Only its hash is kept."""

    name = models.TextField(unique=True)
    token_hash = models.TextField(unique=True, help_text="SHA-256, hex.")
    role = models.TextField(choices=[(r, r) for r in ("viewer", "support", "operator", "admin")])
    created_at = models.DateTimeField(db_default=Now())
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "workflow_api_tokens"
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name
