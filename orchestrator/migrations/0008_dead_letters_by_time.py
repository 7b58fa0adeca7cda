"""Dead letters in the order of their last failure, whatever became of them: the list of all."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("orchestrator", "0007_runs_by_label_value"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="deadletter",
            index=models.Index(fields=["-last_at", "-id"], name="workflow_dead_letters_latest"),
        ),
    ]
