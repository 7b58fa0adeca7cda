"""The machinery: outbox, worker processes, leadership, counters. Names and links of the admin itself."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.urls import reverse

from dashboard.admin.base import NamesRun, ReadOnlyAdmin, run_link, with_query
from dashboard.admin.filters import SubmittedFilter, word_filter
from orchestrator.core.metric_names import (
    DUPLICATE_COMPLETIONS,
    RUN_DURATION_BUCKET,
    RUN_DURATION_SUM,
    RUNS_FAILED,
    RUNS_MISSED_DEADLINE,
    STEP_ATTEMPTS,
    STEPS_WAITING_BUCKET,
    STEPS_WAITING_SUM,
)
from orchestrator.models import Beat, Lease, Outbox, Rollup, RollupDelta, RollupHour

admin.site.site_header = "Switchyard"
admin.site.site_title = "Switchyard admin"
admin.site.index_title = "The record"
admin.site.site_url = "/"
METRICS = (DUPLICATE_COMPLETIONS, RUN_DURATION_BUCKET, RUN_DURATION_SUM, RUNS_FAILED, RUNS_MISSED_DEADLINE,
           STEP_ATTEMPTS, STEPS_WAITING_BUCKET, STEPS_WAITING_SUM)  # fmt: skip


@admin.register(Outbox)
class OutboxAdmin(NamesRun):
    """Tickets not yet handed to Redis."""

    list_display = ("id", "step", "queue", "tickets", "gated", "created_at", "run_page")
    list_filter = ("gated", SubmittedFilter)
    search_fields = ("queue__exact", "step__exact")
    search_help_text = "Run id, subject, queue or step, written in full."

    @admin.display(description="run")
    def run_page(self, obj: Outbox) -> str:
        """The run's page on the dashboard."""
        return run_link(obj.run_id)


@admin.register(Lease)
class LeaseAdmin(ReadOnlyAdmin):
    """Worker processes, alive while their lease is."""

    list_display = ("name", "host", "pid", "queues", "started_at", "heartbeat_at", "expires_at", "ended_at")
    list_filter = (("ended_at", admin.EmptyFieldListFilter),)
    search_fields = ("name", "host")
    date_hierarchy = "started_at"
    hidden = ("token",)

    def dashboard(self, obj: Lease) -> str:
        """The page of queues and workers."""
        return reverse("queues")


@admin.register(Beat)
class BeatAdmin(ReadOnlyAdmin):
    """Who leads a duty."""

    list_display = ("name", "holder", "beat_at", "expires_at")
    list_filter = (("holder", admin.EmptyFieldListFilter),)
    search_fields = ("name", "holder")

    def dashboard(self, obj: Beat) -> str:
        """The page of health."""
        return reverse("health")


class CounterAdmin(ReadOnlyAdmin):
    """What counters have in common."""

    large = True
    list_filter = (word_filter("metric", METRICS),)
    search_fields = ("metric__exact",)
    search_help_text = "A metric's name, or the name of a workflow, step or queue that it is about."

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """By the metric, or by the value of one of the labels that people look for."""
        term = search_term.strip()
        found = Q(metric=term)
        for label in ("workflow", "queue", "step"):
            found |= Q(labels__contains={label: term})
        return (queryset.filter(found) if term else queryset), False

    def dashboard(self, obj: Any) -> str:
        """The charts of its workflow, or of all."""
        return with_query("charts", workflow=obj.labels.get("workflow", ""))


@admin.register(Rollup)
class RollupAdmin(CounterAdmin):
    """Counters."""

    ordering = ("metric", "labels")
    list_display = ("metric", "labels", "value")


@admin.register(RollupDelta)
class RollupDeltaAdmin(CounterAdmin):
    """Increments not yet folded in."""

    ordering = ("-id",)
    list_display = ("id", "metric", "labels", "value")


@admin.register(RollupHour)
class RollupHourAdmin(CounterAdmin):
    """What counters rose by within an hour, for the charts."""

    ordering = ("-hour", "metric", "labels")
    list_display = ("hour", "metric", "labels", "value")
    list_filter = (word_filter("metric", (RUN_DURATION_BUCKET, STEPS_WAITING_BUCKET)),)
