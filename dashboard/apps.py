"""Django app of the pages and the JSON API."""

from django.apps import AppConfig


class DashboardConfig(AppConfig):
    """Reads models, acts through ``orchestrator.engine.operate`` alone."""

    name = "dashboard"
    label = "dashboard"
    verbose_name = "Dashboard"
    default_auto_field = "django.db.models.BigAutoField"
