"""An index for the pages: what steps wait for, counted and listed without reading the others."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("dashboard", "0001_initial")]

    operations = [
        migrations.RunSQL(
            "CREATE INDEX IF NOT EXISTS workflow_steps_waiting ON workflow_steps (waiting_for, ready_at)"
            " WHERE state = 'waiting'",
            "DROP INDEX IF EXISTS workflow_steps_waiting",
        )
    ]
