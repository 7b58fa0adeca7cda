"""Runs by the value of any of their labels: what support pastes is found whatever the label is called."""

from django.contrib.postgres.indexes import GinIndex, OpClass
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("orchestrator", "0006_audit_acts"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="run",
            index=GinIndex(
                OpClass(
                    models.Func(
                        models.F("labels"),
                        function="jsonb_path_query_array",
                        output_field=models.JSONField(),
                        template="%(function)s(%(expressions)s, '$.*')",
                    ),
                    name="jsonb_path_ops",
                ),
                condition=models.Q(("labels", {}), _negated=True),
                name="workflow_runs_label_values",
            ),
        ),
    ]
