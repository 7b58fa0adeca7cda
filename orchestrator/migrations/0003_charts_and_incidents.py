"""Charts by the hour, notes on incidents, and two small indexes: incomplete undos, missed deadlines."""

import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.db.models.functions.datetime
from django.db import migrations, models

import orchestrator.core.states


class Migration(migrations.Migration):
    dependencies = [
        ("orchestrator", "0002_storage"),
    ]

    operations = [
        migrations.CreateModel(
            name="Incident",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "fingerprints",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(), help_text="Failures that it is about.", size=None
                    ),
                ),
                ("owner", models.TextField(db_default="", help_text="Who looks after it.")),
                ("note", models.TextField(db_default="")),
                (
                    "fixed_in",
                    models.TextField(db_default="", help_text="What holds the fix: a version, a release, a change."),
                ),
                ("fixed_at", models.DateTimeField(help_text="What fails alike after this came back.", null=True)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("updated_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("updated_by", models.TextField(db_default="")),
            ],
            options={
                "db_table": "workflow_incidents",
                "ordering": ["-id"],
            },
        ),
        migrations.CreateModel(
            name="RollupHour",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("metric", models.TextField()),
                ("labels", models.JSONField(default=dict)),
                ("hour", models.DateTimeField(help_text="Beginning of the hour.")),
                ("value", models.FloatField()),
            ],
            options={
                "db_table": "workflow_rollup_hours",
            },
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(("compensation", orchestrator.core.states.Undo["PARTIAL"])),
                fields=["-id"],
                name="workflow_runs_partial",
            ),
        ),
        migrations.AddIndex(
            model_name="run",
            index=models.Index(
                condition=models.Q(
                    (
                        "state__in",
                        [
                            orchestrator.core.states.RunState["CANCELLED"],
                            orchestrator.core.states.RunState["DONE"],
                            orchestrator.core.states.RunState["FAILED"],
                        ],
                    ),
                    models.Q(
                        ("deadline_missed_at__isnull", False),
                        ("finished_at__gt", models.F("deadline_at")),
                        _connector="OR",
                    ),
                ),
                fields=["-finished_at"],
                name="workflow_runs_missed",
            ),
        ),
        migrations.AddIndex(
            model_name="incident",
            index=django.contrib.postgres.indexes.GinIndex(fields=["fingerprints"], name="workflow_incidents_alike"),
        ),
        migrations.AddConstraint(
            model_name="rolluphour",
            constraint=models.UniqueConstraint(
                fields=("hour", "metric", "labels"), name="workflow_rollup_hours_hour_metric_key"
            ),
        ),
    ]
