"""The four groups and what each may see and do in the admin."""

from __future__ import annotations

from typing import Any

from django.db import migrations

# Roles add up: each also has what those before it have. Pages ask for the role, the admin for these permissions.
ADMIN_WRITES = ["apitoken", "schedule", "topic", "pause"]
USERS = ["user", "group"]


def _permissions(apps: Any, names: list[str] | set[str], actions: list[str], app: str = "orchestrator") -> list[Any]:
    """Permissions by model and action, made here where ``post_migrate`` has not run yet."""
    content_type = apps.get_model("contenttypes", "ContentType")
    permission = apps.get_model("auth", "Permission")
    found = []
    for name in names:
        kind, _ = content_type.objects.get_or_create(app_label=app, model=name)
        for action in actions:
            words = {"name": f"Can {action} {name}"}
            found.append(
                permission.objects.get_or_create(codename=f"{action}_{name}", content_type=kind, defaults=words)[0]
            )
    return found


def forwards(apps: Any, schema_editor: Any) -> None:
    """Make the groups and add their permissions."""
    group = apps.get_model("auth", "Group")
    models = [model._meta.model_name for model in apps.get_app_config("orchestrator").get_models()]
    secret = {"apitoken"}
    view = _permissions(apps, [name for name in models if name not in secret], ["view"])
    for role in ("viewer", "support", "operator", "admin"):
        row, _ = group.objects.get_or_create(name=role)
        row.permissions.add(*view)
    row = group.objects.get(name="admin")
    row.permissions.add(*_permissions(apps, secret, ["view"]))
    row.permissions.add(*_permissions(apps, ADMIN_WRITES, ["add", "change", "delete"]))
    row.permissions.add(*_permissions(apps, USERS, ["view", "add", "change", "delete"], app="auth"))


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("orchestrator", "0001_initial"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
    ]

    operations = [migrations.RunPython(forwards, migrations.RunPython.noop)]
