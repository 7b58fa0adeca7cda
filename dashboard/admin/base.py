"""What all admin pages of ours have in common: read-only, masked, bounded, and roles instead of model permissions."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, ClassVar, cast

from django.contrib import admin
from django.core.paginator import Paginator
from django.db.models import JSONField, Model, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.functional import cached_property
from django.utils.html import format_html
from django.utils.safestring import SafeString

from dashboard.access import may
from orchestrator.core.mask import mask
from orchestrator.models import Definition

#: Rows that a list counts and pages through at most; filters and search lead to the rest.
MAX_ROWS = 10_000
#: Characters of a value that are shown.
MAX_SHOWN = 20_000
#: Text that handlers or people wrote, in which a secret may stand.
FREE_TEXT = ("note", "reason", "external", "log", "last_error", "paused_reason", "detail")


class BoundedPaginator(Paginator):
    """Counts no further than :data:`MAX_ROWS`."""

    @cached_property
    def count(self) -> int:
        """Rows, or :data:`MAX_ROWS` if there are more."""
        rows = cast("QuerySet[Any]", self.object_list)
        return rows.order_by()[:MAX_ROWS].count()


class WorkflowFilter(admin.SimpleListFilter):
    """By workflow, offered from the definitions: the column's own distinct values would be read from every row."""

    title = "workflow"
    parameter_name = "workflow"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """The published workflows."""
        names = Definition.objects.order_by("workflow").values_list("workflow", flat=True).distinct()
        return [(name, name) for name in names]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The rows of the chosen one."""
        return queryset.filter(**{self.parameter_name: self.value()}) if self.value() else queryset


class RunWorkflowFilter(WorkflowFilter):
    """The same for rows that belong to a run."""

    parameter_name = "run__workflow"


class ReadOnlyAdmin(admin.ModelAdmin):
    """A model whose rows the engine owns. Everybody with a role may look; nobody adds, changes or deletes."""

    role = "viewer"
    show_full_result_count = False
    paginator = BoundedPaginator
    list_per_page = 50
    #: Fields that are not shown at all.
    hidden: tuple[str, ...] = ()

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """By role."""
        return may(request.user, self.role)

    def has_module_permission(self, request: HttpRequest) -> bool:
        """By role."""
        return may(request.user, self.role)

    def has_operate_permission(self, request: HttpRequest) -> bool:
        """Whether actions on runs are offered."""
        return may(request.user, "operator")

    def has_administer_permission(self, request: HttpRequest) -> bool:
        """Whether actions on tokens are offered."""
        return may(request.user, "admin")

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never: rows come from the engine."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never; ``prune`` removes what is old."""
        return False

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        """The declared readonly fields, then every column, JSON and free text masked."""
        columns = [f for f in self.model._meta.concrete_fields if f.name not in self.hidden]
        shown = [_masked(f.name) if isinstance(f, JSONField) or f.name in FREE_TEXT else f.name for f in columns]
        return [*self.readonly_fields, *shown]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        """All of them."""
        return self.get_fields(request, obj)


def masked_column(name: str, title: str = "") -> Callable[[Any], str]:
    """A column of a list: the beginning of a text that people wrote, masked."""

    @admin.display(description=title or name.replace("_", " "))
    def show(obj: Any) -> str:
        return str(mask(getattr(obj, name)) or "-")[:200]

    show.__name__ = f"shown_{name}"
    return show


def _masked(name: str) -> Callable[[Model], str]:
    @admin.display(description=name.replace("_", " "))
    def show(obj: Model) -> str:
        value = mask(getattr(obj, name))
        if value is None or value == "":
            return "-"
        text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
        return format_html("<pre>{}</pre>", text[:MAX_SHOWN])

    show.__name__ = name
    return show


def link(viewname: str, text: Any, *args: Any) -> SafeString:
    """A link to a page by its name."""
    return format_html('<a href="{}">{}</a>', reverse(viewname, args=args), text)


def run_link(run_id: Any, text: Any = None) -> SafeString:
    """A link to the run's page on the dashboard."""
    return link("run", text or str(run_id)[:8] + "…", run_id)


class OfRun(ReadOnlyAdmin):
    """Rows that belong to a run: linked to its page, shown with its workflow and subject."""

    list_select_related: ClassVar[tuple[str, ...]] = ("run",)

    @admin.display(description="run", ordering="run_id")
    def run_page(self, obj: Any) -> str:
        """The run's page on the dashboard."""
        return run_link(obj.run_id) if obj.run_id else "-"

    @admin.display(description="workflow")
    def of_workflow(self, obj: Any) -> str:
        """Workflow and version of the run."""
        return f"{obj.run.workflow} v{obj.run.version}" if obj.run_id else "-"

    @admin.display(description="subject")
    def of_subject(self, obj: Any) -> str:
        """Subject of the run."""
        return obj.run.subject_id if obj.run_id else "-"
