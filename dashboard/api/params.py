"""Parameters of addresses: their descriptions for OpenAPI, and the refusal of unknown ones."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from django.http import QueryDict
from django.urls import register_converter
from django.urls.converters import PathConverter

from orchestrator.core.errors import Invalid, NotFound
from orchestrator.core.states import Cause, DeadLetterState, RunState, StepState, Undo


class Text(PathConverter):
    """The rest of an address, whatever it holds: a subject may have slashes and line breaks."""

    regex = "(?s:.+)"


register_converter(Text, "text")


def only(params: QueryDict, *known: str) -> None:
    """Refuses a misspelt filter, which would otherwise match everything, and NUL characters.

    Raises:
        Invalid: with the parameter's name.
    """
    for name, values in params.lists():
        if name not in known:
            shown = name[:100].replace("\x00", "\ufffd")
            raise Invalid(f"there is no parameter {shown!r} here; known are {', '.join(known)}", field=shown)
        if any("\x00" in value for value in values):
            raise Invalid(f"{name} holds a NUL character", field=name)


def number(text: str, what: str) -> int:
    """The id of a row.

    Raises:
        NotFound: for text that no row can have as its id.
    """
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    raise NotFound(f"there is no {what} {text[:100]!r}")


def described(name: str, text: str, **schema: Any) -> dict[str, Any]:
    """One parameter of the query for the OpenAPI document."""
    return {"in": "query", "name": name, "description": text, "required": False, "schema": schema or {"type": "string"}}


def _choices(name: str, text: str, words: type[StrEnum]) -> dict[str, Any]:
    return described(
        name, f"{text}; several with commas between them.", type="string", examples=[str(next(iter(words)))]
    )


FILTERS: list[dict[str, Any]] = [
    described("workflow", "Name of the workflow."),
    described("version", "Version of the definition.", type="integer"),
    _choices("state", "State of the run", RunState),
    _choices("cause", "Cause recorded on the run", Cause),
    _choices("compensation", "How far the undo is", Undo),
    described("subject_id", "The subject."),
    described("label", "key:value; can be repeated."),
    described("step", "Runs that stand at this step, or stood there when they ended."),
    _choices("step_state", "Runs with a step (that of `step`, if given) in this state", StepState),
    described("waiting_longer_than", "Live runs whose step was reached this long ago, such as 1h."),
    described("parent", "Children of this run.", type="string", format="uuid"),
    described("overdue", "Running past the deadline.", type="boolean"),
    described("since", "Submitted at or after: ISO 8601, a day, or 2h for two hours ago."),
    described("until", "Submitted at or before, written likewise."),
    described("q", "Text in the subject or workflow, an idempotency key, or the beginning of an id."),
]
LIST: list[dict[str, Any]] = [
    described("cursor", "`next_cursor` of the page before."),
    described("limit", "Size of the page.", type="integer", minimum=1, maximum=200, default=50),
]
DEAD_LETTER_FILTERS: list[dict[str, Any]] = [
    described(
        "state", "open (default), any, or another state.", type="string", enum=["any", *map(str, DeadLetterState)]
    ),
    described("workflow", "Name of the workflow."),
    described("version", "Version of the definition.", type="integer"),
    described("step", "Id of the step, or name of the compensation."),
    described("cause", "Cause of the failure.", type="string", enum=[str(c) for c in Cause]),
    described("run", "Of this run.", type="string", format="uuid"),
    described("fingerprint", "What failed alike."),
]
