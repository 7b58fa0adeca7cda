"""Bulk operations and alerts, as they were recorded."""

from __future__ import annotations

from django.contrib import admin

from dashboard.admin.base import ReadOnlyAdmin, masked_column, run_link
from orchestrator.models import Alert, BulkItem, BulkOperation


@admin.register(Alert)
class AlertAdmin(ReadOnlyAdmin):
    """Alerts sent and to be sent."""

    list_display = ("key", "kind", "created_at", "attempts", "sent_at", "next_at", "run_page")
    list_filter = ("kind",)
    search_fields = ("key__exact",)

    @admin.display(description="run")
    def run_page(self, obj: Alert) -> str:
        """The run's page on the dashboard."""
        return run_link(obj.run_id)


@admin.register(BulkOperation)
class BulkOperationAdmin(ReadOnlyAdmin):
    """What was done to many, by whom and why."""

    list_display = ("id", "verb", "state", "actor", masked_column("reason"), "created_at", "finished_at")
    list_filter = ("verb", "state")


@admin.register(BulkItem)
class BulkItemAdmin(ReadOnlyAdmin):
    """One target of a bulk operation and what came of it."""

    list_display = ("id", "operation", "position", "target", "state", "at")
    list_select_related = ("operation",)
    search_fields = ("target__exact",)
