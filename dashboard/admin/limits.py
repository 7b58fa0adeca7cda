"""Topics, locks, schedules, pauses and API tokens."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from dashboard.admin.actions import ask_why
from dashboard.admin.base import ReadOnlyAdmin, link, masked_column, run_link, with_query
from dashboard.admin.filters import word_filter
from orchestrator.core.states import StepState
from orchestrator.engine import operate, tokens
from orchestrator.models import ApiToken, Lock, Pause, Schedule, Step, Topic


class OnQueuesPage(ReadOnlyAdmin):
    """What the page of queues shows."""

    def dashboard(self, obj: Any) -> str:
        """The page of queues."""
        return reverse("queues")


@admin.register(Topic)
class TopicAdmin(OnQueuesPage):
    """Cluster-wide limits; set them on the queues page, by the API or with ``manage.py topic``."""

    list_display = ("name", "limit", "set_by", "updated_at")
    list_filter = (("set_by", admin.EmptyFieldListFilter), ("limit", admin.EmptyFieldListFilter))
    search_fields = ("name", "set_by")
    date_hierarchy = "updated_at"


class HeldFilter(admin.SimpleListFilter):
    """Locks that somebody holds now; index: workflow_steps_lock."""

    title = "held"
    parameter_name = "held"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Held now."""
        return [("yes", "held now")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Those whose name a running row carries."""
        held = Step.objects.filter(state=StepState.RUNNING, lock_name__isnull=False).order_by()
        return queryset.filter(name__in=held.values("lock_name")) if self.value() == "yes" else queryset


@admin.register(Lock)
class LockAdmin(OnQueuesPage):
    """Names that have been locked on, each with the row that holds it now."""

    large = True
    list_display = ("name", "holder")
    list_filter = (HeldFilter,)
    search_fields = ("name__startswith",)
    search_help_text = "The beginning of a name."

    def get_queryset(self, request: HttpRequest) -> QuerySet[Lock]:
        """With the row that holds each; index: workflow_steps_lock."""
        held = Step.objects.filter(lock_name=OuterRef("name"), state=StepState.RUNNING).order_by()
        rows: QuerySet[Lock] = super().get_queryset(request)
        return rows.annotate(held_by=Subquery(held.values("pk")[:1]))

    @admin.display(description="held by step")
    def holder(self, obj: Any) -> str:
        """The running row that carries the name."""
        return link("admin:orchestrator_step_change", obj.held_by, obj.held_by) if obj.held_by else "-"


@admin.register(Schedule)
class ScheduleAdmin(ReadOnlyAdmin):
    """Cron schedules; pause, resume and run them on the dashboard."""

    list_display = ("workflow", "cron", "timezone", "overlap", "paused", "next_at", "last_at", "last_page", "missed",
                    "skipped")  # fmt: skip
    list_filter = ("paused", word_filter("overlap", ("skip", "allow")))
    search_fields = ("workflow", "subject")
    date_hierarchy = "last_at"

    def dashboard(self, obj: Schedule) -> str:
        """The page of schedules."""
        return reverse("schedules")

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
    date_hierarchy = "created_at"
    actions = ("resume",)

    def dashboard(self, obj: Pause) -> str:
        """The workflow, or the page of queues."""
        return reverse("workflow", args=[obj.name]) if obj.kind == "workflow" else reverse("queues")

    @admin.action(description="Resume", permissions=["operate"])
    def resume(self, request: HttpRequest, queryset: QuerySet[Pause]) -> HttpResponse | None:
        """Ends pauses before their time."""
        return ask_why(
            self,
            request,
            queryset,
            verb="Resume",
            done="resumed",
            perform=lambda pause, actor, form: operate.resume(pause.kind, pause.name, actor, form["reason"]),
        )


@admin.register(ApiToken)
class ApiTokenAdmin(ReadOnlyAdmin):
    """API tokens: made with ``manage.py create_token``, which shows the text once."""

    role = "admin"
    list_display = ("name", "role", "created_at", "last_used_at", "revoked_at")
    list_filter = ("role", ("revoked_at", admin.EmptyFieldListFilter), ("last_used_at", admin.EmptyFieldListFilter))
    search_fields = ("name",)
    date_hierarchy = "created_at"
    hidden = ("token_hash",)
    actions = ("revoke",)

    def dashboard(self, obj: ApiToken) -> str:
        """What has been done with it."""
        return with_query("audit", actor=f"token:{obj.name}")

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
