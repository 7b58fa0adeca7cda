"""What happened: attempts, dead letters, the audit trail."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse

from dashboard.admin.actions import ask_why
from dashboard.admin.base import OfRun, ReadOnlyAdmin, masked_column, with_query
from dashboard.admin.filters import RunWorkflowFilter, SubmittedFilter, WorkflowFilter, word_filter
from dashboard.queries.audit import ACTIONS
from orchestrator.core.actor import ROLES
from orchestrator.core.mask import mask_error, mask_text
from orchestrator.engine import operate
from orchestrator.models import Attempt, AuditRecord, DeadLetter, Incident


@admin.register(Attempt)
class AttemptAdmin(OfRun):
    """Tries that did not succeed."""

    list_display = ("id", "of_step", "attempt", "cause", "message", "worker", "started_at", "finished_at", "retry_at",
                    "of_workflow", "of_subject", "run_page")  # fmt: skip
    list_filter = ("cause", RunWorkflowFilter, SubmittedFilter)
    search_fields = ("step_row__step__exact", "worker__exact")
    search_help_text = "Run id, subject, step or worker, written in full."
    list_select_related = ("run", "step_row")
    readonly_fields = ("run_page",)

    @admin.display(description="step")
    def of_step(self, obj: Attempt) -> str:
        """Step and shard."""
        return str(obj.step_row)

    @admin.display(description="error")
    def message(self, obj: Attempt) -> str:
        """The beginning of the error."""
        return _message(obj.error)


@admin.register(DeadLetter)
class DeadLetterAdmin(OfRun):
    """Permanent failures, with replay and discard."""

    list_display = ("id", "workflow", "step", "shard", "state", "cause", "message", "attempts", "count", "last_at",
                    "of_subject", "run_page")  # fmt: skip
    list_filter = ("state", "cause", WorkflowFilter, SubmittedFilter)
    search_fields = ("step__exact", "fingerprint__exact")
    search_help_text = "Run id, subject, step or fingerprint, written in full."
    readonly_fields = ("run_page",)
    actions = ("replay", "discard")

    def dashboard(self, obj: DeadLetter) -> str:
        """What failed alike, on the page of dead letters."""
        return with_query("dead-letters", fingerprint=obj.fingerprint, state="any")

    @admin.display(description="error")
    def message(self, obj: DeadLetter) -> str:
        """The beginning of the error."""
        return _message(obj.error)

    @admin.action(description="Replay dead letters", permissions=["operate"])
    def replay(self, request: HttpRequest, queryset: QuerySet[DeadLetter]) -> HttpResponse | None:
        """Executes again what failed for good."""
        return ask_why(
            self,
            request,
            queryset,
            verb="Replay dead letters",
            done="replayed",
            perform=lambda letter, actor, form: operate.replay_dead_letter(letter.pk, actor, form["reason"]),
        )

    @admin.action(description="Discard dead letters", permissions=["operate"])
    def discard(self, request: HttpRequest, queryset: QuerySet[DeadLetter]) -> HttpResponse | None:
        """Closes them without executing anything."""
        return ask_why(
            self,
            request,
            queryset,
            verb="Discard dead letters",
            done="discarded",
            perform=lambda letter, actor, form: operate.discard_dead_letter(letter.pk, actor, form["reason"]),
        )


@admin.register(Incident)
class IncidentAdmin(ReadOnlyAdmin):
    """What people noted about failures that belong together."""

    list_display = ("id", "owner", masked_column("note"), "fixed_in", "fixed_at", "updated_by", "updated_at")
    list_filter = (("fixed_at", admin.EmptyFieldListFilter),)
    search_fields = ("owner", "fixed_in", "note")
    date_hierarchy = "updated_at"

    def dashboard(self, obj: Incident) -> str:
        """The failures that it is about."""
        return with_query("dead-letters", fingerprint=obj.fingerprints[0], state="any") if obj.fingerprints else ""


@admin.register(AuditRecord)
class AuditRecordAdmin(OfRun):
    """Who did what, and what the engine decided."""

    list_display = ("id", "at", "action", "actor", "role", "reason_text", "subject", "run_page")
    list_filter = (word_filter("action", ACTIONS), word_filter("role", ROLES), SubmittedFilter)
    search_fields = ("actor__exact", "action__exact", "subject__exact")
    search_help_text = "Run id, subject of a run, actor, action or what it concerns, written in full."
    readonly_fields = ("run_page",)

    def dashboard(self, obj: AuditRecord) -> str:
        """Its run, or the trail of what it concerns."""
        return super().dashboard(obj) or with_query("audit", subject=obj.subject)

    @admin.display(description="reason")
    def reason_text(self, obj: AuditRecord) -> str:
        """The beginning of the reason."""
        return mask_text(obj.reason)[:200]


def _message(error: object) -> str:
    shown = mask_error(error)
    return f"{shown['type']}: {shown['message']}"[:200] if shown else "-"
