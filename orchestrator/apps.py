"""Django app of the engine."""

from django.apps import AppConfig


class OrchestratorConfig(AppConfig):
    """Models, engine, transport and commands."""

    name = "orchestrator"
    label = "orchestrator"
    verbose_name = "Switchyard"
    default_auto_field = "django.db.models.BigAutoField"
