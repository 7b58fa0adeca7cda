"""Every state has a word, a shape and a colour that exist."""

import re
from datetime import timedelta
from pathlib import Path

import pytest
from django.conf import settings
from django.utils import timezone

from dashboard import words
from dashboard.templatetags import switchyard as tags
from orchestrator.core.states import Cause, DeadLetterState, RunState, StepState, Undo, WaitingFor

SPRITE = (Path(settings.BASE_DIR) / "templates/components/sprite.html").read_text()
TOKENS = (Path(settings.BASE_DIR) / "static/css/components.css").read_text()


def test_nothing_is_left_out():
    assert set(words.RUN) == set(RunState)
    assert set(words.STEP) == set(StepState)
    assert set(words.WAITING) == set(WaitingFor)
    assert set(words.DEAD_LETTER) == set(DeadLetterState)
    assert set(words.UNDO) == set(Undo)
    assert set(words.CAUSE) == set(Cause)


def test_every_shape_and_colour_exists():
    for table in words.TABLES.values():
        for look in table.values():
            assert f'id="{look.glyph}"' in SPRITE
            assert f".{look.css}{{" in TOKENS


def test_every_icon_in_the_templates_is_in_the_sprite():
    used = set()
    for path in (Path(settings.BASE_DIR) / "templates").rglob("*.html"):
        used |= set(re.findall(r'{% icon "([^"]+)"', path.read_text()))
    assert used
    assert [name for name in used if f'id="i-{name}"' not in SPRITE] == []


@pytest.mark.parametrize(("ago", "words"), [(0, "0 s"), (64, "1 m 4 s"), (7380, "2 h 3 m"), (200_000, "2 d 7 h")])
def test_ages(ago, words):
    html = tags.since(timezone.now() - timedelta(seconds=ago)).replace("\u00a0", " ")
    assert f">{words}</time>" in html
    assert 'data-age="since"' in html


def test_times_are_utc_and_have_a_date_unless_today():
    now = timezone.now()
    assert f">{now:%H:%M:%S}</time>" in tags.when(now)
    old = now.replace(year=2020, month=2, day=3, hour=4, minute=5, second=6, microsecond=0)
    assert (
        tags.when(old)
        == '<time datetime="2020-02-03T04:05:06Z" title="2020-02-03 04:05:06 UTC">3 Feb 2020 04:05</time>'
    )
    assert tags.when(None) == tags.DASH


def test_counts_stop_at_a_bound():
    assert (tags.many(9_999), tags.many(10_001)) == ("9,999", "10,000+")
    assert tags.plural(1, "run,runs") == "1 run"
    assert tags.plural(0, "run,runs") == "0 runs"
