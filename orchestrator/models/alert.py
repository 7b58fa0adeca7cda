"""An alert to be sent, written in the transaction that gave rise to it."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now


class Alert(models.Model):
    """One alert of a run: it failed, or it missed a deadline that only alerts. Sent once it has committed."""

    key = models.TextField(unique=True, help_text="The same for the same event, for whoever receives it twice.")
    run = models.ForeignKey("orchestrator.Run", on_delete=models.CASCADE, related_name="alerts")
    kind = models.TextField(help_text="failed or deadline")
    created_at = models.DateTimeField(db_default=Now())
    next_at = models.DateTimeField(
        null=True, db_default=Now(), help_text="When it is sent, or sent again; empty: no more."
    )
    attempts = models.IntegerField(db_default=0)
    sent_at = models.DateTimeField(null=True)
    last_error = models.TextField(db_default="")

    class Meta:
        db_table = "workflow_alerts"
        ordering = ["-id"]
        indexes = [models.Index(fields=["next_at"], name="workflow_alerts_due", condition=Q(next_at__isnull=False))]

    def __str__(self) -> str:
        return self.key
