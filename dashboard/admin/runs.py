"""Runs, their steps, compensations and fan-outs, and the definitions they follow."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html

from dashboard.admin.actions import CancelForm, ask_why
from dashboard.admin.base import OfRun, ReadOnlyAdmin, link, run_link, with_query
from dashboard.admin.filters import RunWorkflowFilter, SubmittedFilter, WorkflowFilter
from orchestrator.core.states import Kind
from orchestrator.engine import operate
from orchestrator.engine.find import text_condition
from orchestrator.models import Compensation, Definition, FanOut, Run, Step


@admin.register(Definition)
class DefinitionAdmin(ReadOnlyAdmin):
    """Published versions."""

    list_display = ("workflow", "version", "published_at", "retired_at", "package", "content_hash", "page")
    list_filter = (WorkflowFilter, ("retired_at", admin.EmptyFieldListFilter))
    search_fields = ("workflow", "content_hash")
    date_hierarchy = "published_at"

    def dashboard(self, obj: Definition) -> str:
        """The page of the version."""
        return with_query("workflow", obj.workflow, version=obj.version)

    @admin.display(description="on the dashboard")
    def page(self, obj: Definition) -> str:
        """The version, and its runs."""
        runs = with_query("runs", workflow=obj.workflow, version=obj.version)
        return format_html('<a href="{}">version</a> · <a href="{}">runs</a>', self.dashboard(obj), runs)


class RunsSubmittedFilter(SubmittedFilter):
    """The same for the runs themselves."""

    column = "pk"


@admin.register(Run)
class RunAdmin(ReadOnlyAdmin):
    """Runs, with cancel and retry."""

    large = True
    list_display = ("page", "workflow", "version", "subject_id", "state", "cause", "current_step", "pending",
                    "submitted_at", "deadline_at", "finished_at")  # fmt: skip
    list_display_links = ("subject_id",)
    list_filter = ("state", "cause", "compensation", WorkflowFilter, RunsSubmittedFilter)
    search_fields = ("subject_id",)
    search_help_text = "Subject, workflow, idempotency key, or the beginning of an id."
    readonly_fields = ("page", "rows")
    actions = ("cancel", "retry")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Run]:
        """Lists go without payloads."""
        runs = super().get_queryset(request)
        at_list = request.resolver_match and request.resolver_match.url_name == "orchestrator_run_changelist"
        return runs.defer("input", "output", "error") if at_list else runs

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Run], search_term: str
    ) -> tuple[QuerySet[Run], bool]:
        """As the search of the runs page."""
        return queryset.filter(text_condition(search_term.strip())) if search_term.strip() else queryset, False

    def dashboard(self, obj: Run) -> str:
        """The run's page."""
        return reverse("run", args=[obj.pk])

    @admin.display(description="run", ordering="id")
    def page(self, obj: Run) -> str:
        """The run's page on the dashboard."""
        return run_link(obj.pk)

    @admin.display(description="its rows")
    def rows(self, obj: Run) -> str:
        """Lists of what belongs to the run."""
        parts = []
        for model in ("step", "compensation", "fanout", "attempt", "deadletter", "auditrecord"):
            address = reverse(f"admin:orchestrator_{model}_changelist")
            parts.append(format_html('<a href="{}?run__id__exact={}">{}s</a>', address, obj.pk, model))
        return format_html(" · ".join("{}" for _ in parts), *parts)

    @admin.action(description="Cancel runs", permissions=["operate"])
    def cancel(self, request: HttpRequest, queryset: QuerySet[Run]) -> HttpResponse | None:
        """Stops runs and undoes what they did."""
        return ask_why(
            self,
            request,
            queryset,
            verb="Cancel runs",
            done="cancelled",
            perform=lambda run, actor, form: operate.cancel_run(run.pk, actor, form["reason"], force=form["force"]),
            preview=_cancel_preview,
            form_class=CancelForm,
        )

    @admin.action(description="Retry runs", permissions=["operate"])
    def retry(self, request: HttpRequest, queryset: QuerySet[Run]) -> HttpResponse | None:
        """Lets failed and cancelled runs go on."""
        return ask_why(
            self,
            request,
            queryset,
            verb="Retry runs",
            done="going on",
            perform=lambda run, actor, form: operate.retry_run(run.pk, actor, form["reason"]),
            preview=_retry_preview,
        )


def _cancel_preview(run: Run) -> list[str]:
    found = operate.preview_cancel(run.pk)
    lines = [f"Undone: {_named(item)} by {item.handler}" for item in found.undo[:10]]
    if len(found.undo) > 10:
        lines.append(f"… and {len(found.undo) - 10} more")
    if found.not_undoable:
        lines.append(f"Not undone: {', '.join(found.not_undoable[:10])}")
    return lines or ["Nothing to undo."]


def _retry_preview(run: Run) -> list[str]:
    found = operate.preview_retry(run.pk)
    lines = [f"Executed again: {_named(item)} ({item.why})" for item in found.steps[:10]]
    if len(found.steps) > 10:
        lines.append(f"… and {len(found.steps) - 10} more")
    calls = [f"{name} ({number})" for name, number in list(found.side_effects.items())[:10]]
    return [*lines, f"Calls to the outside made again: {', '.join(calls)}"] if calls else lines


def _named(item: Any) -> str:
    return f"{item.step}[{item.shard}]" if item.shard else item.step


class RowAdmin(OfRun):
    """What steps and compensations have in common."""

    search_fields = ("step__exact", "shard__exact")
    search_help_text = "Run id, subject, step or shard, written in full."
    readonly_fields = ("run_page",)
    # The token fences a claim: whoever knows it could close the attempt.
    hidden = ("token",)

    def dashboard(self, obj: Any) -> str:
        """The step, opened on its run's page."""
        page = with_query("run", obj.run_id, step=obj.step, shard=obj.shard)
        return f"{page}#step" if obj.kind == Kind.STEP else reverse("run", args=[obj.run_id])


@admin.register(Step)
class StepAdmin(RowAdmin):
    """Steps and shards."""

    list_display = ("id", "step", "shard", "state", "cause", "attempt", "queue", "waiting_for", "ready_at",
                    "started_at", "finished_at", "of_workflow", "of_subject", "run_page")  # fmt: skip
    list_filter = ("state", "kind", "waiting_for", "cause", RunWorkflowFilter, SubmittedFilter)


@admin.register(Compensation)
class CompensationAdmin(RowAdmin):
    """Rows that undo."""

    list_filter = ("state", "waiting_for", "cause", RunWorkflowFilter, SubmittedFilter)
    list_display = ("id", "step", "shard", "undone_step", "state", "cause", "attempt", "queue", "started_at",
                    "finished_at", "of_workflow", "of_subject", "run_page")  # fmt: skip
    list_select_related = ("run", "undoes")

    @admin.display(description="undoes")
    def undone_step(self, obj: Compensation) -> str:
        """What it undoes."""
        if obj.undoes:
            return link("admin:orchestrator_step_change", obj.undoes, obj.undoes_id)
        return ", ".join(obj.undoes_steps or []) or "-"


@admin.register(FanOut)
class FanOutAdmin(OfRun):
    """Counters of fan-outs."""

    list_display = ("id", "step", "total", "open", "done", "skipped", "failed", "cancelled", "window", "of_workflow",
                    "of_subject", "run_page")  # fmt: skip
    list_filter = (RunWorkflowFilter, SubmittedFilter)
    search_fields = ("step__exact",)
    search_help_text = "Run id, subject or step, written in full."
    readonly_fields = ("run_page",)

    def dashboard(self, obj: FanOut) -> str:
        """Its shards on the run's page."""
        return with_query("run", obj.run_id, shards=obj.step)
