"""An index for what people did, without the submissions."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("orchestrator", "0005_runs_by_cause"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="auditrecord",
            index=models.Index(
                condition=models.Q(
                    models.Q(("actor", "engine"), _negated=True), models.Q(("action", "submit"), _negated=True)
                ),
                fields=["-id"],
                name="workflow_audit_acts",
            ),
        ),
    ]
