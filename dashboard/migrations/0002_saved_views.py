"""Saved views of the runs page, and who may see the tables that came with them in the admin."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import django.db.models.functions.datetime
from django.db import migrations, models

_permissions = import_module("dashboard.migrations.0001_initial")._permissions
ROLES = ("viewer", "support", "operator", "admin")


def forwards(apps: Any, schema_editor: Any) -> None:
    """Every role sees them."""
    group = apps.get_model("auth", "Group")
    view = _permissions(apps, ["incident", "rolluphour"], ["view"])
    view += _permissions(apps, ["savedview"], ["view"], app="dashboard")
    for role in ROLES:
        row, _ = group.objects.get_or_create(name=role)
        row.permissions.add(*view)


class Migration(migrations.Migration):
    dependencies = [("dashboard", "0001_initial"), ("orchestrator", "0003_charts_and_incidents")]

    operations = [
        migrations.CreateModel(
            name="SavedView",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.TextField(unique=True)),
                ("query", models.TextField(help_text="The filters as an address holds them.")),
                ("owner", models.TextField(help_text="Who saved it.")),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={"db_table": "workflow_saved_views", "ordering": ["name"]},
        ),
        migrations.RunPython(forwards, migrations.RunPython.noop),
    ]
