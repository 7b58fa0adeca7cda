"""Template tags of every page: states, icons, durations and times, always the same way."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

from django import template
from django.http import HttpRequest, QueryDict
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from dashboard import nav, words
from dashboard.records import record_of
from orchestrator.core.durations import format_duration
from orchestrator.core.mask import mask_text
from orchestrator.engine import explain_words, stale
from orchestrator.engine.clock import record_now
from orchestrator.engine.pauses import Paused
from orchestrator.models import DeadLetter, Run, Step

register = template.Library()
DASH = mark_safe('<span class="dim">–</span>')


@register.simple_tag
def icon(name: str, css: str = "") -> SafeString:
    """A line icon of the sprite; it decorates words and is hidden from screen readers."""
    return format_html('<svg class="i {}" aria-hidden="true"><use href="#i-{}"/></svg>', css, name)


@register.simple_tag
def glyph(state: str | None, kind: str = "run", waiting_for: str | None = None) -> SafeString:
    """Only the shape of a state, for where its word stands beside it."""
    return _glyph(words.look(state, kind, waiting_for))


@register.simple_tag
def state_badge(
    state: str | None, kind: str = "run", waiting_for: str | None = None, word: str | None = None
) -> SafeString:
    """A state as a pill: shape, word and colour. ``kind``: run, step, waiting, dead_letter, undo or mark."""
    look = words.look(state, kind, waiting_for)
    return format_html('<span class="badge {}">{}{}</span>', look.css, _glyph(look), word or look.word)


@register.simple_tag
def state_word(
    state: str | None, kind: str = "run", waiting_for: str | None = None, word: str | None = None
) -> SafeString:
    """A state without a pill, for tables: shape, word and colour."""
    look = words.look(state, kind, waiting_for)
    return format_html('<span class="state {}">{}{}</span>', look.css, _glyph(look), word or look.word)


def _glyph(look: words.Look) -> SafeString:
    return format_html('<svg class="st {}" aria-hidden="true"><use href="#{}"/></svg>', look.css, look.glyph)


@register.simple_tag
def look_name(state: str, kind: str = "run") -> str:
    """The word of a state alone, beside a :func:`glyph`."""
    return words.look(state, kind).word


@register.filter
def masked(text: object) -> str:
    """Text that people or handlers wrote, without the secrets in it."""
    return mask_text(str(text))


@register.filter
def cause_words(cause: str | None) -> str:
    """A cause for the middle of a sentence."""
    return words.cause_words(cause)


@register.filter
def duration(seconds: float | dt.timedelta | None) -> str:
    """Seconds or a timedelta for people: ``2 h 5 m``; a dash for none."""
    if seconds is None or seconds == "":
        return "–"
    if isinstance(seconds, dt.timedelta):
        seconds = seconds.total_seconds()
    return _unbroken(format_duration(seconds))


@register.filter
def rough(seconds: float | str | None) -> str:
    """Seconds in one unit, for figures that are estimates: ``250 ms``, ``12 s``, ``4.5 m``, ``2.1 h``."""
    if seconds is None or isinstance(seconds, str):
        return "–"
    units = (("ms", 0.001, 1.0), ("s", 1.0, 120.0), ("m", 60.0, 7200.0), ("h", 3600.0, 172800.0))
    unit, size = next(((name, size) for name, size, most in units if seconds < most), ("d", 86400.0))
    value = seconds / size
    return f"{value:.0f}\u00a0{unit}" if value >= 10 or value == round(value) else f"{value:.1f}\u00a0{unit}"


@register.filter
def took(end: dt.datetime | None, start: dt.datetime | None) -> str:
    """The time between two moments; a dash while one is missing."""
    return duration(end - start) if end and start else "–"


@register.filter
def when(moment: dt.datetime | None) -> SafeString:
    """A moment in the reader's zone: ``14:05:02`` today, ``29 Nov 14:05`` this year, ``29 Nov 2024 14:05`` before."""
    if moment is None:
        return DASH
    moment = moment.astimezone(dt.UTC)
    return format_html(
        '<time datetime="{}" title="{} UTC">{}</time>',
        _iso(moment),
        moment.strftime("%Y-%m-%d %H:%M:%S"),
        clock(moment),
    )


def clock(moment: dt.datetime) -> str:
    """The text of :func:`when` alone."""
    return explain_words.clock(moment, record_now())


@register.filter
def zone_name(moment: dt.datetime) -> str:
    """What the reader's clocks are called at that moment: ``UTC`` unless a zone was chosen."""
    return explain_words.zone_name(moment)


@register.simple_tag
def zone() -> str:
    """The zone that times are shown in: ``UTC`` or such as ``Europe/Paris``."""
    return timezone.get_current_timezone_name()


@register.filter
def since(moment: dt.datetime | None) -> SafeString:
    """How long ago, counting on in the browser: ``3 m 4 s``."""
    return _age(moment, "since")


@register.filter
def until(moment: dt.datetime | None) -> SafeString:
    """How long from now, counting down in the browser; negative when it has passed: ``-3 m``."""
    return _age(moment, "until")


def _age(moment: dt.datetime | None, way: str) -> SafeString:
    if moment is None:
        return DASH
    seconds = (record_now() - moment).total_seconds()
    seconds = max(seconds, 0.0) if way == "since" else -seconds
    moment = moment.astimezone(dt.UTC)
    return format_html(
        '<time datetime="{}" title="{} UTC" data-age="{}">{}</time>',
        _iso(moment),
        moment.strftime("%Y-%m-%d %H:%M:%S"),
        way,
        _unbroken(format_duration(round(seconds))),
    )


def _unbroken(text: str) -> str:
    """With a true minus and spaces that no line break parts."""
    return text.replace("-", "−").replace(" ", "\u00a0")


def _iso(moment: dt.datetime) -> str:
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


@register.filter
def iso_exact(moment: dt.datetime) -> str:
    """A moment to the microsecond, for a form that says which row it has shown."""
    return moment.astimezone(dt.UTC).isoformat()


@register.filter
def many(count: int | None) -> str:
    """A count with thousands separated; a bounded one (``orchestrator`` counts stop at 10,000) shows a plus."""
    if count is None:
        return "–"
    return f"{nav.BOUND:,}+" if count > nav.BOUND else f"{count:,}"


@register.filter
def is_among(value: str, options: list[Any]) -> bool:
    """Whether a value of an address is one of the options offered, which have a ``value``."""
    return any(option.value == value for option in options)


@register.filter
def plural(count: int, forms: str) -> str:
    """``{{ n|plural:"run is,runs are" }}``: the count and the form that fits it."""
    one, _, more = forms.partition(",")
    return f"{many(count)} {one if count == 1 else more}"


@register.filter
def ucfirst(text: str) -> str:
    """With a capital first letter."""
    text = str(text)
    return text[:1].upper() + text[1:]


@register.filter
def ordinal(number: int) -> str:
    """``2nd``, ``3rd``, ``11th``."""
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


@register.filter
def pretty_json(value: Any) -> str:
    """JSON on several lines, for a ``<pre>``. The template escapes it."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


@register.filter
def get(mapping: dict[Any, Any], key: Any) -> Any:
    """A dictionary's value by a variable key."""
    return mapping.get(key)


@register.simple_tag(takes_context=True)
def query(context: template.Context, **changes: Any) -> str:
    """The present query string with some keys set or (when empty) dropped; the cursor goes unless it is given."""
    request: HttpRequest = context["request"]
    params = QueryDict(request.GET.urlencode(), mutable=True)
    params.pop("cursor", None)
    for key, value in changes.items():
        if value in (None, ""):
            params.pop(key, None)
        else:
            params[key] = str(value)
    return f"?{params.urlencode()}" if params else "?"


@register.simple_tag(takes_context=True)
def record(context: template.Context) -> str:
    """The address of the admin's page of what the page shows; empty where there is none or the user may not go."""
    return record_of(context["request"])


@register.simple_tag
def step_sign(step: Step, run: Run) -> str:
    """What a form about a step carries, so that it has no effect once the step has moved on."""
    return stale.sign_of_step(step, run)


@register.filter
def letter_sign(letter: DeadLetter) -> str:
    """The same of a dead letter."""
    return stale.sign_of_letter(letter)


@register.simple_tag(takes_context=True)
def theme(context: template.Context) -> str:
    """The theme of the cookie, for pages without the frame; also where there is no request (the 500 page)."""
    request = context.get("request")
    return nav.theme(request) if request is not None else ""


@register.simple_tag
def paused() -> list[Paused]:
    """The pauses in force, for the notice on every page."""
    return nav.frame().pauses


@register.simple_tag(takes_context=True)
def shell(context: template.Context) -> nav.Shell:
    """What the frame of a page needs: the navigation with its counts, the role, the label of the environment."""
    return nav.shell(context["request"])
