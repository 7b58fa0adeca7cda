"""Bulk operations and alerts, as they were recorded."""

from __future__ import annotations

from django.contrib import admin
from django.urls import reverse
from django.utils.html import format_html

from dashboard.admin.base import NamesRun, ReadOnlyAdmin, masked_column, run_link, with_query
from dashboard.admin.filters import SubmittedFilter, word_filter
from orchestrator.core.actor import ROLES
from orchestrator.models import Alert, BulkItem, BulkOperation


@admin.register(Alert)
class AlertAdmin(NamesRun):
    """Alerts sent and to be sent."""

    list_display = ("key", "kind", "created_at", "attempts", "sent_at", "next_at", masked_column("last_error"),
                    "run_page")  # fmt: skip
    list_filter = (word_filter("kind", ("failed", "deadline")), SubmittedFilter)
    search_fields = ("key__exact",)
    search_help_text = "Run id or key, written in full."

    @admin.display(description="run")
    def run_page(self, obj: Alert) -> str:
        """The run's page on the dashboard."""
        return run_link(obj.run_id)


@admin.register(BulkOperation)
class BulkOperationAdmin(ReadOnlyAdmin):
    """What was done to many, by whom and why."""

    list_display = ("id", "verb", "state", "actor", masked_column("reason"), "total", "done", "skipped", "failed",
                    "created_at", "finished_at", "items_of")  # fmt: skip
    list_filter = ("verb", "state", word_filter("role", ROLES))
    search_fields = ("actor", "reason")
    date_hierarchy = "created_at"
    ordering = ("-created_at",)

    def dashboard(self, obj: BulkOperation) -> str:
        """Its page."""
        return reverse("bulk", args=[obj.pk])

    @admin.display(description="items")
    def items_of(self, obj: BulkOperation) -> str:
        """The list of its items."""
        address = with_query("admin:orchestrator_bulkitem_changelist", operation__id__exact=obj.pk)
        return format_html('<a href="{}">items</a>', address)


@admin.register(BulkItem)
class BulkItemAdmin(ReadOnlyAdmin):
    """One target of a bulk operation and what came of it."""

    large = True
    ordering = ("-id",)
    list_display = ("id", "operation", "position", "target", "state", "outcome", masked_column("detail"), "at")
    list_filter = ("state", "outcome")
    list_select_related = ("operation",)
    search_fields = ("target__exact",)
    search_help_text = "Id of a run or a dead letter."

    def dashboard(self, obj: BulkItem) -> str:
        """The run that it was done to, else the operation."""
        return reverse("run", args=[obj.run_id]) if obj.run_id else reverse("bulk", args=[obj.operation_id])
