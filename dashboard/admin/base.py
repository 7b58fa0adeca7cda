"""What all admin pages of ours have in common: read-only, masked, bounded, and roles instead of model permissions."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any, ClassVar, cast

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.db.models import JSONField, Model, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.functional import cached_property
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from dashboard.access import may
from orchestrator.core.mask import mask
from orchestrator.models import Run

#: Rows that a list counts and pages through at most; filters and search lead to the rest.
MAX_ROWS = 10_000
#: Runs of a subject whose rows a search finds.
MAX_RUNS = 200
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


class BoundedChangeList(ChangeList):
    """Lists of large tables keep their order, which an index gives; any other would sort the whole table."""

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> Any:
        """The model's own order where the table may be large, else what was clicked on."""
        model_admin = cast("ReadOnlyAdmin", self.model_admin)
        if not model_admin.large:
            return super().get_ordering(request, queryset)
        return list(model_admin.ordering or self.model._meta.ordering or ["-pk"])

    @property
    def is_bounded(self) -> bool:
        """Whether there are more rows than are counted."""
        return bool(self.result_count >= MAX_ROWS)


class ReadOnlyAdmin(admin.ModelAdmin):
    """A model whose rows the engine owns. Everybody with a role may look; nobody adds, changes or deletes.

    ``large``: the table may hold millions of rows, so its list stands in the order of an index. ``dashboard`` answers
    the address at which the dashboard shows a row, or empty.
    """

    role = "viewer"
    large = False
    show_full_result_count = False
    #: Counts beside filters would read the whole table; the dashboard's are bounded.
    show_facets = admin.ShowFacets.NEVER
    paginator = BoundedPaginator
    list_per_page = 50
    #: Fields that are not shown at all.
    hidden: tuple[str, ...] = ()

    def dashboard(self, obj: Any) -> str:
        """The address at which the dashboard shows the row; empty: nowhere."""
        return ""

    @admin.display(description="on the dashboard")
    def on_dashboard(self, obj: Any) -> str:
        """A link to it."""
        address = self.dashboard(obj)
        return format_html('<a href="{}">open</a>', address) if address else "-"

    def view_on_site(self, obj: Any) -> str | None:
        """The button above a row."""
        return self.dashboard(obj) or None

    def get_list_display(self, request: HttpRequest) -> Any:
        """The declared columns, and the link to the dashboard where none of them is one."""
        declared = tuple(super().get_list_display(request))
        return declared if {"run_page", "page"} & set(declared) else (*declared, "on_dashboard")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """One that sorts no large table."""
        return BoundedChangeList

    def get_sortable_by(self, request: HttpRequest) -> Any:
        """No column of a large table."""
        return () if self.large else super().get_sortable_by(request)

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


def with_query(viewname: str, *args: Any, **values: Any) -> str:
    """The address of a page with parameters; those that are empty are left out."""
    query = urlencode({name: value for name, value in values.items() if value not in (None, "")})
    return reverse(viewname, args=args) + (f"?{query}" if query else "")


def run_link(run_id: Any, text: Any = None) -> SafeString:
    """A link to the run's page on the dashboard."""
    return link("run", text or str(run_id)[:8] + "…", run_id)


def runs_named(text: str) -> list[uuid.UUID]:
    """The run with this id, or the latest runs with this subject."""
    try:
        return [uuid.UUID(text.strip())]
    except ValueError:
        runs = Run.objects.filter(subject_id=text.strip().replace("\x00", "")).order_by("-id")
        return list(runs.values_list("pk", flat=True)[:MAX_RUNS]) if text.strip() else []


class NamesRun(ReadOnlyAdmin):
    """Rows with a ``run_id``: found by the run or its subject, shown on its page."""

    large = True

    def dashboard(self, obj: Any) -> str:
        """The page of its run."""
        return reverse("run", args=[obj.run_id]) if obj.run_id else ""

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Rows of the run or of the subject's runs where the text names one, else by the columns searched."""
        runs = runs_named(search_term)
        if runs:
            return queryset.filter(run_id__in=runs), False
        return super().get_search_results(request, queryset, search_term)


class OfRun(NamesRun):
    """Rows that belong to a run: linked to its page, shown with its workflow and subject."""

    ordering = ("-id",)
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
