"""What a bulk call or page is asked to act on: criteria by name, read as the lists read them; never none at all."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace

from dashboard.queries import run_filters
from orchestrator.core.bulk import BulkVerb
from orchestrator.core.errors import Invalid
from orchestrator.core.states import Cause, DeadLetterState
from orchestrator.engine.bulk import Filters
from orchestrator.engine.find_dead_letters import DeadLetterFilters

LETTER_NAMES = ("state", "workflow", "version", "step", "cause", "run", "fingerprint")
#: Fingerprints of one incident at most.
MOST_ALIKE = 100


def names(verb: BulkVerb) -> tuple[str, ...]:
    """The criteria that there are for it: those of the list."""
    return run_filters.NAMES if verb.of_runs else LETTER_NAMES


def parse(verb: BulkVerb, given: Mapping[str, Iterable[str]]) -> Filters:
    """The filter. Empty values count as not given; other names than :func:`names` are refused.

    Raises:
        Invalid: a value that cannot be read, an unknown name, or no criterion at all.
    """
    asked = {name: [text for text in values if text != ""] for name, values in given.items()}
    for name in asked:
        if name not in names(verb):
            raise Invalid(
                f"{name[:100]!r} is no filter of {verb.objects()}; there are {', '.join(names(verb))}", field="filter"
            )
    asked = {name: values for name, values in asked.items() if values}
    if not asked:
        raise Invalid(f"say which {verb.objects()}: an empty filter would mean all of them", field="filter")
    return run_filters.parse(asked) if verb.of_runs else letters_of(asked)


def letters_of(asked: Mapping[str, list[str]]) -> DeadLetterFilters:
    """A filter of dead letters as an address holds it: ``fingerprint`` may stand several times, of which any matches.

    Raises:
        Invalid: for a value that cannot be read.
    """
    given = {name: [value for value in values if value] for name, values in asked.items()}
    alike = list(dict.fromkeys(given.pop("fingerprint", [])))
    if len(alike) > MOST_ALIKE:
        raise Invalid(f"fingerprint is given {len(alike)} times; {MOST_ALIKE} at most", field="fingerprint")
    found = letters({name: _one(name, values) for name, values in given.items() if values})
    if any("\x00" in text for text in alike):
        raise Invalid("fingerprint holds a NUL character", field="fingerprint")
    return replace(found, fingerprint=alike[0]) if len(alike) == 1 else replace(found, fingerprints=tuple(alike))


def letters(given: Mapping[str, str]) -> DeadLetterFilters:
    """A filter of dead letters; the open ones unless ``state`` says otherwise (``any``: all).

    Raises:
        Invalid: for a value that cannot be read.
    """
    text = {name: value for name, value in given.items() if name in LETTER_NAMES and value}
    state = _word("state", text.get("state", DeadLetterState.OPEN), ["any", *DeadLetterState])
    for name in ("workflow", "step", "fingerprint"):
        if "\x00" in text.get(name, ""):
            raise Invalid(f"{name} holds a NUL character", field=name)
    return DeadLetterFilters(
        state=None if state == "any" else state,
        workflow=text.get("workflow"),
        version=_version(text["version"]) if "version" in text else None,
        step=text.get("step"),
        fingerprint=text.get("fingerprint"),
        cause=_word("cause", text["cause"], list(Cause)) if "cause" in text else None,
        run=_run(text["run"]) if "run" in text else None,
    )


def _version(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Invalid(f"version {text[:100]!r} is not a whole number from 1", field="version")
    return int(text)


def _run(text: str) -> uuid.UUID:
    try:
        return uuid.UUID(text)
    except ValueError:
        raise Invalid(f"run {text[:100]!r} is not the id of a run", field="run") from None


def _one(name: str, values: list[str]) -> str:
    if len(values) > 1:
        raise Invalid(f"{name} is given {len(values)} times; give it once", field=name)
    return values[0]


def _word(name: str, text: str, known: list[str]) -> str:
    if text not in known:
        raise Invalid(f"{name} {text[:100]!r} is unknown; it is one of {', '.join(known)}", field=name)
    return text
