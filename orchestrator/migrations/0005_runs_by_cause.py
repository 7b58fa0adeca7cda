"""Runs of one cause, newest first: a rare cause is found without reading the runs that ended well."""

from __future__ import annotations

from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("orchestrator", "0004_marked_calls")]

    operations = [
        migrations.AddIndex(
            model_name="run",
            index=models.Index(fields=["cause", "-id"], name="workflow_runs_cause", condition=Q(cause__isnull=False)),
        ),
    ]
