"""Ticks of a schedule: zones, summer time, what was missed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest

from orchestrator.core.cron import MOST, cron_problem, due, fill_subject, next_tick, ticks, zone_problem

PARIS = "Europe/Paris"
SPRING = datetime(2024, 3, 30, 22, tzinfo=UTC)  # the night in which 02:00 to 03:00 is missing
AUTUMN = datetime(2024, 10, 26, 20, tzinfo=UTC)  # the night in which 02:00 to 03:00 comes twice


def local(cron, after, count, zone=PARIS):
    found = islice(ticks(cron, zone, after), count)
    return [f"{t.astimezone(ZoneInfo(zone)):%d %H:%M %z}".removesuffix("00") for t in found]


def test_an_hour_of_the_local_day_whatever_the_season():
    assert next_tick("0 3 * * *", PARIS, datetime(2024, 1, 5, 12, tzinfo=UTC)) == datetime(2024, 1, 6, 2, tzinfo=UTC)
    assert next_tick("0 3 * * *", PARIS, datetime(2024, 7, 5, 12, tzinfo=UTC)) == datetime(2024, 7, 6, 1, tzinfo=UTC)
    assert next_tick("0 3 * * *", "Asia/Kolkata", SPRING) == datetime(2024, 3, 31, 21, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        ("30 2 * * *", ["31 03:00 +02", "01 02:30 +02"]),
        ("0 2,3 * * *", ["31 03:00 +02", "01 02:00 +02", "01 03:00 +02"]),
        ("*/20 2 * * *", ["31 03:00 +02", "01 02:00 +02", "01 02:20 +02"]),
        ("0 */2 * * *", ["31 00:00 +01", "31 03:00 +02", "31 04:00 +02"]),
        ("30 * * * *", ["30 23:30 +01", "31 00:30 +01", "31 01:30 +01", "31 03:30 +02", "31 04:30 +02"]),
    ],
)
def test_a_missing_local_time_comes_once_after_the_gap(cron, expected):
    assert local(cron, SPRING, len(expected)) == expected


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        ("30 2 * * *", ["27 02:30 +02", "28 02:30 +01"]),
        ("*/30 2 * * *", ["27 02:00 +02", "27 02:30 +02", "28 02:00 +01"]),
        ("30 1-3 * * *", ["27 01:30 +02", "27 02:30 +02", "27 03:30 +01"]),
        (
            "30 * * * *",
            ["26 22:30 +02", "26 23:30 +02", "27 00:30 +02", "27 01:30 +02", "27 02:30 +02", "27 02:30 +01"],
        ),
    ],
)
def test_a_repeated_local_time_comes_once_and_every_hour_is_every_hour(cron, expected):
    assert local(cron, AUTUMN, len(expected)) == expected


@pytest.mark.parametrize("cron", ["30 2 * * *", "*/30 2 * * *", "0 */2 * * *", "*/15 * * * *", "0 0-23 * * *"])
@pytest.mark.parametrize("start", [SPRING, AUTUMN])
def test_asking_for_the_next_from_anywhere_agrees_with_going_through(cron, start):
    end = start + timedelta(hours=12)
    through = [t for t in islice(ticks(cron, PARIS, start), 100) if t <= end]
    assert all(a < b for a, b in pairwise(through))
    moment = start
    while moment < end:
        expected = next((t for t in through if t > moment), None)
        if expected is not None:
            assert next_tick(cron, PARIS, moment) == expected
        moment += timedelta(minutes=7)
    found, moment = [], start
    while (tick := next_tick(cron, PARIS, moment)) is not None and tick <= end:
        found.append(tick)
        moment = tick
    assert found == through


def test_what_was_missed_comes_as_the_latest():
    first = datetime(2024, 3, 29, 2, tzinfo=UTC)
    now = datetime(2024, 4, 2, 12, tzinfo=UTC)
    found = due("0 3 * * *", PARIS, first, now)
    assert found == (datetime(2024, 4, 2, 1, tzinfo=UTC), 5, datetime(2024, 4, 3, 1, tzinfo=UTC))
    on_time = due("0 3 * * *", PARIS, first, first)
    assert on_time == (first, 1, first + timedelta(days=1))


def test_years_of_minutes_are_not_gone_through():
    first, now = datetime(2014, 1, 1, tzinfo=UTC), datetime(2024, 4, 2, 12, 0, 30, tzinfo=UTC)
    found = due("* * * * *", "UTC", first, now)
    assert found.tick == datetime(2024, 4, 2, 12, tzinfo=UTC)
    assert found.come == MOST
    rare = due("0 0 29 2 *", "UTC", datetime(2004, 2, 29, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC))
    assert rare == (datetime(2024, 2, 29, tzinfo=UTC), 6, datetime(2028, 2, 29, tzinfo=UTC))


def test_a_tick_that_an_earlier_version_set_is_the_only_one_there_is():
    """The times have changed since, and no tick of theirs has come: what is due fires as it stands."""
    first = datetime(2024, 3, 29, 2, 17, tzinfo=UTC)
    assert due("0 3 1 1 *", "UTC", first, first + timedelta(minutes=1)).tick == first


def test_subjects():
    tick = datetime(2024, 3, 31, 22, 30, tzinfo=UTC)
    assert fill_subject("nightly-{date}", tick, PARIS) == "nightly-2024-04-01"
    assert fill_subject("nightly-{date}", tick, "UTC") == "nightly-2024-03-31"
    assert fill_subject("{time} {datetime} {x}", tick, PARIS) == "00:30 2024-04-01T00:30 {x}"
    assert fill_subject("plain", tick, PARIS) == "plain"


@pytest.mark.parametrize(
    ("cron", "says"),
    [
        ("0 3 * *", "not a cron expression"),
        ("61 * * * *", "not a cron expression"),
        ("@daily", "not a cron expression"),
        ("0 0 31 2 *", "not a cron expression"),
        ("", "not a cron expression"),
        ("0 3 * * MON-FRI", None),
        ("*/5 * * * * *", None),
        ("0 0 L * *", None),
    ],
)
def test_what_is_no_expression(cron, says):
    found = cron_problem(cron)
    assert found is None if says is None else says in (found or "")


@pytest.mark.parametrize("zone", ["Mars/Base", "", "../../etc/passwd", "/etc/localtime"])
def test_what_is_no_zone(zone):
    assert "no known time zone" in (zone_problem(zone) or "")
    assert zone_problem(PARIS) is None
