"""Saved views of the runs page."""

from __future__ import annotations

from django.contrib import admin
from django.urls import reverse

from dashboard.admin.base import ReadOnlyAdmin
from dashboard.models import SavedView


@admin.register(SavedView)
class SavedViewAdmin(ReadOnlyAdmin):
    """Saved and deleted on the runs page."""

    list_display = ("name", "query", "owner", "created_at")
    list_filter = ("created_at",)
    search_fields = ("name", "owner__exact", "query")
    date_hierarchy = "created_at"

    def dashboard(self, obj: SavedView) -> str:
        """The runs that it shows."""
        return f"{reverse('runs')}?{obj.query}"
