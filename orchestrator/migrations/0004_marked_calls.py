"""Words only: a row keeps every call to the outside that was marked, one a line, and not just the last."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("orchestrator", "0003_charts_and_incidents")]

    operations = [
        migrations.AlterField(
            model_name="step",
            name="external",
            field=models.TextField(
                help_text="Calls to the outside that its attempts have marked, one a line.", null=True
            ),
        ),
    ]
