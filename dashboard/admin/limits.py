"""Topics, locks, schedules, pauses and API tokens."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse

from dashboard.admin.actions import ask_why
from dashboard.admin.base import ReadOnlyAdmin, masked_column, run_link
from orchestrator.engine import tokens
from orchestrator.models import ApiToken, Lock, Pause, Schedule, Topic


@admin.register(Topic)
class TopicAdmin(ReadOnlyAdmin):
    """Cluster-wide limits; set them on the queues page, by the API or with ``manage.py topic``."""

    list_display = ("name", "limit", "set_by", "updated_at")
    search_fields = ("name",)


@admin.register(Lock)
class LockAdmin(ReadOnlyAdmin):
    """Names that have been locked on."""

    list_display = ("name",)
    search_fields = ("name",)


@admin.register(Schedule)
class ScheduleAdmin(ReadOnlyAdmin):
    """Cron schedules."""

    list_display = ("workflow", "cron", "timezone", "overlap", "paused", "next_at", "last_at", "last_page")
    list_filter = ("paused",)
    search_fields = ("workflow", "subject")

    @admin.display(description="last run")
    def last_page(self, obj: Schedule) -> str:
        """The page of the run that it started last."""
        return run_link(obj.last_run_id) if obj.last_run_id else "-"


@admin.register(Pause)
class PauseAdmin(ReadOnlyAdmin):
    """What starts nothing new for a while."""

    list_display = ("kind", "name", "until", "actor", masked_column("reason"), "created_at")
    list_filter = ("kind",)
    search_fields = ("name", "actor")


@admin.register(ApiToken)
class ApiTokenAdmin(ReadOnlyAdmin):
    """API tokens: made with ``manage.py create_token``, which shows the text once."""

    role = "admin"
    list_display = ("name", "role", "created_at", "last_used_at", "revoked_at")
    list_filter = ("role",)
    search_fields = ("name",)
    hidden = ("token_hash",)
    actions = ("revoke",)

    @admin.action(description="Revoke tokens", permissions=["administer"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiToken]) -> HttpResponse | None:
        """Makes tokens useless."""
        return ask_why(
            self,
            request,
            queryset,
            verb="Revoke tokens",
            done="revoked",
            perform=lambda token, actor, form: tokens.revoke_token(token.name, actor, form["reason"]),
        )
