"""Filters beside the admin's lists. None of them reads a table to learn what can be chosen."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from orchestrator.core.durations import parse_duration
from orchestrator.core.ids import first_id
from orchestrator.engine.clock import record_now
from orchestrator.models import Definition


class WordFilter(admin.SimpleListFilter):
    """One of known words in a column: the column's own distinct values would be read from every row."""

    parameter_name = ""
    words: tuple[str, ...] = ()

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """The words."""
        return [(word, word) for word in self.words]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The rows with the chosen one."""
        return queryset.filter(**{self.parameter_name: self.value()}) if self.value() else queryset


class WorkflowFilter(WordFilter):
    """By workflow, offered from the definitions."""

    title = "workflow"
    parameter_name = "workflow"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """The published workflows."""
        names = Definition.objects.order_by("workflow").values_list("workflow", flat=True).distinct()
        return [(name, name) for name in names]


class RunWorkflowFilter(WorkflowFilter):
    """The same for rows that belong to a run."""

    parameter_name = "run__workflow"


def word_filter(column: str, words: Iterable[str], title: str = "") -> type[WordFilter]:
    """A filter of a column by known words."""
    said = title or column.replace("_", " ")
    named: dict[str, Any] = {"title": said, "parameter_name": column, "words": tuple(map(str, words))}
    return type(f"{column.title()}Filter", (WordFilter,), named)


class SubmittedFilter(admin.SimpleListFilter):
    """By the time of the run's submission, which its id begins with: an index bounds what is read."""

    title = "run submitted"
    parameter_name = "submitted"
    column = "run_id"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """How long ago at most."""
        return [("1h", "in the last hour"), ("1d", "in the last 24 hours"), ("7d", "in the last 7 days")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The rows of runs that are no older."""
        chosen = self.value()
        if chosen not in dict(self.lookups(request, None)):
            return queryset
        since = record_now() - timedelta(seconds=parse_duration(str(chosen)))
        return queryset.filter(**{f"{self.column}__gte": first_id(since)})
