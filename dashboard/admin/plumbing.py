"""The machinery: outbox, worker processes, leadership, counters. Names and links of the admin itself."""

from __future__ import annotations

from django.contrib import admin

from dashboard.admin.base import ReadOnlyAdmin, run_link
from orchestrator.models import Beat, Lease, Outbox, Rollup, RollupDelta, RollupHour

admin.site.site_header = "Switchyard"
admin.site.site_title = "Switchyard admin"
admin.site.index_title = "The record"
admin.site.site_url = "/"


@admin.register(Outbox)
class OutboxAdmin(ReadOnlyAdmin):
    """Tickets not yet handed to Redis."""

    list_display = ("id", "step", "queue", "tickets", "created_at", "run_page")
    list_filter = ()
    search_fields = ("queue__exact", "step__exact")

    @admin.display(description="run")
    def run_page(self, obj: Outbox) -> str:
        """The run's page on the dashboard."""
        return run_link(obj.run_id)


@admin.register(Lease)
class LeaseAdmin(ReadOnlyAdmin):
    """Worker processes, alive while their lease is."""

    list_display = ("name", "host", "pid", "queues", "started_at", "heartbeat_at", "expires_at", "ended_at")
    search_fields = ("name", "host")
    hidden = ("token",)


@admin.register(Beat)
class BeatAdmin(ReadOnlyAdmin):
    """Who leads a duty."""

    list_display = ("name", "holder", "beat_at", "expires_at")


@admin.register(Rollup)
class RollupAdmin(ReadOnlyAdmin):
    """Counters."""

    list_display = ("metric", "labels", "value")
    search_fields = ("metric",)


@admin.register(RollupDelta)
class RollupDeltaAdmin(ReadOnlyAdmin):
    """Increments not yet folded in."""

    list_display = ("id", "metric", "labels", "value")
    search_fields = ("metric__exact",)


@admin.register(RollupHour)
class RollupHourAdmin(ReadOnlyAdmin):
    """What counters rose by within an hour, for the charts."""

    list_display = ("hour", "metric", "labels", "value")
    search_fields = ("metric__exact",)
