"""Tags of the page of one run."""

from __future__ import annotations

from datetime import datetime
from itertools import groupby
from typing import Any

from django import template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from dashboard import words
from dashboard.queries.run_steps import RowView, StepView
from dashboard.templatetags.switchyard import until
from orchestrator.core.durations import format_duration
from orchestrator.core.mask import MASK, is_secret_key, mask_text
from orchestrator.core.states import Cause, Kind, StepState, WaitingFor
from orchestrator.engine.explain import Where
from orchestrator.engine.explain_words import clock, error_text, in_brackets, span

register = template.Library()
#: Dots are drawn up to this many attempts.
DOTS = 8


@register.simple_tag
def countdown(where: Where, now: datetime) -> SafeString | str:
    """The sentence behind its lead; where it counts down, the browser counts on."""
    rest = where.sentence[len(where.lead) :].strip()
    if where.due is None or where.due <= now:
        return rest
    left = f"in {span((where.due - now).total_seconds())}"
    before, found, after = rest.rpartition(left)
    return format_html("{}in {}{}", before, until(where.due), after) if found else rest


@register.simple_tag
def look_word(look: words.Look) -> SafeString:
    """Shape, word and colour of a look."""
    glyph = format_html('<svg class="st {}" aria-hidden="true"><use href="#{}"/></svg>', look.css, look.glyph)
    return format_html('<span class="state {}">{}{}</span>', look.css, glyph, look.word)


@register.simple_tag
def seconds_of(view: StepView, now: datetime) -> str:
    """How long a step took or has taken."""
    seconds = view.seconds(now)
    return "–" if seconds is None else format_duration(max(seconds, 0))


@register.simple_tag
def attempt_dots(view: RowView) -> SafeString:
    """Attempts as marks: failed squares, a good disc, rings for those left; then in figures."""
    row = view.row
    if not row.attempt:
        return mark_safe("")
    plain = row.max_attempts == 1 or (row.state == StepState.DONE and row.attempt == 1)
    text = str(row.attempt) if plain else f"{row.attempt} of {row.max_attempts}"
    if max(row.attempt, row.max_attempts) > DOTS:
        return format_html('<span class="att">{}</span>', text)
    failed = min(view.failures, row.attempt)
    marks: list[SafeString] = []
    for i in range(row.max_attempts if row.state != StepState.DONE else row.attempt):
        x = i * 12
        if i < failed:
            marks.append(
                format_html('<rect class="f-fail" x="{}" width="10" height="10" rx="2"/>'
                            '<path class="x" d="m{} 3 4 4m0-4-4 4"/>', x, x + 3)
            )  # fmt: skip
        elif i < row.attempt:
            fill = "f-ok" if row.state == StepState.DONE else "f-run" if row.state == StepState.RUNNING else "f-idle"
            marks.append(format_html('<rect class="{}" x="{}" width="10" height="10" rx="5"/>', fill, x))
        else:
            marks.append(format_html('<rect class="todo" x="{}" y=".5" width="9" height="9" rx="4.5"/>', x + 0.5))
    drawn = format_html_join("", "{}", ((mark,) for mark in marks))
    width = len(marks) * 12 - 2
    return format_html(
        '<span class="att"><svg width="{}" height="10" aria-hidden="true">{}</svg>{}</span>', width, drawn, text
    )


@register.simple_tag
def row_message(view: RowView, now: datetime) -> SafeString:
    """What there is to say of a row: its error, its wait, its note."""
    row = view.row
    if row.state == StepState.WAITING and row.waiting_for == WaitingFor.RETRY:
        again = f"Tries again at {clock(row.ready_at, now)}." if row.ready_at and row.ready_at > now else ""
        return format_html(
            '<span class="err">{}</span> <span class="then">{}</span>', error_text(row.error, 140), again
        )
    if row.state == StepState.WAITING:
        name = in_brackets(mask_text(row.waiting_name)) if row.waiting_name else ""
        until_text = f", until {clock(row.ready_at, now)}" if row.ready_at else ""
        return format_html("Waits for {}{}{}", row.waiting_for, name, until_text)
    if row.state in (StepState.FAILED, StepState.REJECTED, StepState.CANCELLED):
        text = error_text(row.error, 140) or words.cause_words(row.cause)
        css = "dim" if row.state == StepState.CANCELLED else "err"
        return format_html('<span class="{}">{}</span>', css, text if row.error else f"by {text}" if text else "")
    if row.state == StepState.SKIPPED:
        return format_html('<span class="dim">{}</span>', _why_skipped(row.cause))
    if row.state == StepState.QUEUED:
        return format_html(
            '<span class="dim">on {} since {}</span>', row.queue, clock(row.ready_at or row.created_at, now)
        )
    parts = []
    if row.progress is not None and row.state == StepState.RUNNING:
        parts.append(f"{row.progress:.0%}")
    if view.undo_failed:
        return mark_safe('<span class="err">its undo failed</span>')
    if row.note:
        parts.append(mask_text(row.note)[:200])
    if row.kind == Kind.STEP and row.undone_at:
        parts.append(f"undone at {clock(row.undone_at, now)}")
    return format_html('<span class="dim">{}</span>', ", ".join(parts))


def _why_skipped(cause: str | None) -> str:
    return "the run stopped before" if cause == Cause.BLOCKED else "skipped"


@register.filter
def undo_look(state: str, part: str) -> str:
    """``css``, ``glyph`` or ``word`` of a compensation in this state."""
    if state == StepState.DONE:
        look = words.Look("done", "s-comp", "comp")
    elif state == StepState.PENDING:
        look = words.Look("to come", "s-armed", "comp")
    else:
        look = words.look(state, "step")
    return {"css": look.css, "glyph": look.glyph, "word": look.word.lower()}[part]


@register.filter
def folded(undos: list[Any]) -> list[tuple[Any, list[Any]]]:
    """Compensations in their order as (the first, those folded behind it): more than three done in a row are one."""
    found: list[tuple[Any, list[Any]]] = []
    for (state, _), part in groupby(undos, lambda row: (row.state, row.step)):
        rows = list(part)
        if state == StepState.DONE and len(rows) > 3:
            found.append((rows[0], rows))
        else:
            found += [(row, []) for row in rows]
    return found


@register.filter
def error_line(error: Any) -> str:
    """An error on one line, masked."""
    return error_text(error, 140)


@register.simple_tag
def masked_label(key: str, value: Any) -> str:
    """A label's value unless its key says that it is secret."""
    return MASK if is_secret_key(str(key)) else mask_text(str(value))[:200]
