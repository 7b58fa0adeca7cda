"""Room on the page for the updates of the hot path, so that they stay on it (HOT) and bloat less."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("orchestrator", "0001_initial")]

    operations = [
        migrations.RunSQL(
            [
                "ALTER TABLE workflow_runs SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02)",
                "ALTER TABLE workflow_steps SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02)",
                "ALTER TABLE workflow_fan_outs SET (fillfactor = 70)",
                "ALTER TABLE workflow_leases SET (fillfactor = 70)",
                "ALTER TABLE workflow_outbox SET (autovacuum_vacuum_scale_factor = 0.01)",
            ],
            migrations.RunSQL.noop,
        )
    ]
