"""What happened: attempts, dead letters, the audit trail."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse

from dashboard.admin.actions import ask_why
from dashboard.admin.base import OfRun, ReadOnlyAdmin, RunWorkflowFilter, WorkflowFilter
from orchestrator.core.mask import mask_error, mask_text
from orchestrator.engine import operate
from orchestrator.models import Attempt, AuditRecord, DeadLetter, Incident


@admin.register(Attempt)
class AttemptAdmin(OfRun):
    """Tries that did not succeed."""

    list_display = ("id", "of_step", "attempt", "cause", "message", "worker", "started_at", "finished_at", "retry_at",
                    "of_workflow", "of_subject", "run_page")  # fmt: skip
    list_filter = ("cause", RunWorkflowFilter)
    search_fields = ("run__subject_id__exact", "step_row__step__exact", "worker__exact")
    search_help_text = "Subject, step or worker, written in full."
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
    list_filter = ("state", "cause", WorkflowFilter)
    search_fields = ("step__exact", "run__subject_id__exact", "fingerprint__exact")
    search_help_text = "Step, subject or fingerprint, written in full."
    readonly_fields = ("run_page",)
    actions = ("replay", "discard")

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

    list_display = ("id", "owner", "note", "fixed_in", "fixed_at", "updated_by", "updated_at")
    search_fields = ("owner__exact", "fixed_in__exact")


@admin.register(AuditRecord)
class AuditRecordAdmin(OfRun):
    """Who did what, and what the engine decided."""

    list_display = ("id", "at", "action", "actor", "role", "reason_text", "subject", "run_page")
    list_filter = ("role",)
    search_fields = ("actor__exact", "action__exact", "subject__exact", "run__subject_id__exact")
    search_help_text = "Actor, action or subject, written in full."
    readonly_fields = ("run_page",)

    @admin.display(description="reason")
    def reason_text(self, obj: AuditRecord) -> str:
        """The beginning of the reason."""
        return mask_text(obj.reason)[:200]


def _message(error: object) -> str:
    shown = mask_error(error)
    return f"{shown['type']}: {shown['message']}"[:200] if shown else "-"
