"""Lists: filters, strict parameters, keyset pages, a bounded number of queries."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from orchestrator.models import Run
from tests.api.conftest import Caller
from tests.harness import factory


def stages(api: Caller, query: str, runs: dict[str, Run]) -> set[str]:
    status, body = api("GET", f"/runs?limit=200&{query}")
    assert status == 200, body
    names = {str(run.pk): stage for stage, run in runs.items()}
    return {names[item["id"]] for item in body["items"]}


ALL = set(factory.STAGES) - {"wide"}
LIVE = ALL - {"done", "failed", "partial", "cancelled"}


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("", ALL),
        ("state=failed", {"failed", "partial"}),
        ("state=failed,done&state=cancelled", {"failed", "partial", "done", "cancelled"}),
        ("cause=cancelled", {"cancelled"}),
        ("subject_id=vid-done", {"done"}),
        ("workflow=video-upload", ALL),
        ("workflow=other", set()),
        ("version=3", ALL),
        ("version=1", set()),
        ("label=tier:gold", ALL),
        ("label=tier:gold&label=customer:other", set()),
        ("label=tier=gold", ALL),
        ("overdue=true", {"overdue"}),
        ("overdue=false", ALL - {"overdue"}),
        ("step=approve", {"approving"}),
        ("step=transcode&step_state=failed", {"failed", "partial", "compensating"}),
        ("step_state=waiting", {"retrying", "approving"}),
        ("step=transcode&waiting_longer_than=1h", {"overdue"}),
        ("waiting_longer_than=9999d", set()),
        ("q=VID-RETRY", {"retrying"}),
        ("since=1h", ALL - {"overdue"}),
        ("until=1h", {"overdue"}),
        ("state=&q=", ALL),
    ],
)
def test_filters(api: Caller, runs: dict[str, Run], query: str, wanted: set[str]) -> None:
    assert stages(api, query, runs) == wanted


def test_text_finds_ids_and_parents_find_children(api: Caller, runs: dict[str, Run]) -> None:
    child = factory.make("done", subject="child", parent_run=runs["failed"])
    runs["child"] = child
    assert stages(api, f"q={child.pk}", runs) == {"child"}
    assert stages(api, f"q={str(child.pk)[:23]}", runs) == {"child"}
    assert stages(api, f"parent={runs['failed'].pk}", runs) == {"child"}
    assert api("GET", f"/runs/{child.pk}")[1]["parent"]["run_id"] == str(runs["failed"].pk)


def test_times_are_read_with_and_without_an_offset(api: Caller, runs: dict[str, Run]) -> None:
    at = runs["overdue"].submitted_at + timedelta(seconds=1)
    for text in (
        f"{at:%Y-%m-%dT%H:%M:%S.%f}Z",
        f"{at:%Y-%m-%dT%H:%M:%S.%f}%2B00:00",
        f"{at:%Y-%m-%dT%H:%M:%S.%f}+00:00",
    ):
        assert stages(api, f"until={text}", runs) == {"overdue"}


@pytest.mark.parametrize("query", ["a:b:c=d", "a:b=c=d"])
def test_a_label_may_have_the_signs_that_part_it_from_its_value(api: Caller, query: str) -> None:
    run = factory.make("done", subject="odd", labels={"a:b": "c=d"})
    assert [item["id"] for item in api("GET", f"/runs?label={query}")[1]["items"]] == [str(run.pk)]
    assert api("GET", "/runs?label=a:b:c=e")[1]["items"] == []


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("page=-1", "page"),
        ("page=abc", "page"),
        ("stat=failed", "stat"),
        ("limit=0", "limit"),
        ("limit=201", "limit"),
        ("limit=1000000000", "limit"),
        ("limit=ten", "limit"),
        ("limit=-1", "limit"),
        ("cursor=garbage", "cursor"),
        ("cursor=%F0%9F%92%A9", "cursor"),
        ("cursor=AAAA", "cursor"),
        ("state=broken", "state"),
        ("cause=broken", "cause"),
        ("step_state=broken", "step_state"),
        ("version=x", "version"),
        ("version=99999999999", "version"),
        ("parent=not-a-uuid", "parent"),
        ("overdue=maybe", "overdue"),
        ("waiting_longer_than=soon", "waiting_longer_than"),
        ("waiting_longer_than=999999999d", "waiting_longer_than"),
        ("since=yesterday", "since"),
        ("since=0001-01-01T00:00:00%2B14:00", "since"),
        ("label=tier", "label"),
        ("workflow=a%00b", "workflow"),
        ("q=%00", "q"),
        ("cursor=%00", "cursor"),
        ("workflow=a&workflow=b", "workflow"),
        ("q=" + "x" * 501, "q"),
    ],
)
def test_a_parameter_that_cannot_be_read_is_422(api: Caller, query: str, field: str) -> None:
    assert api.error("GET", f"/runs?{query}") == (422, "invalid", field)


def test_pages_hold_every_run_once_while_more_arrive(api: Caller) -> None:
    old = [factory.make("delayed", subject=f"s{n}") for n in range(7)]
    seen: list[str] = []
    cursor = ""
    for _ in range(10):
        status, body = api("GET", f"/runs?limit=3{cursor}")
        assert status == 200
        assert len(body["items"]) <= 3
        seen += [item["id"] for item in body["items"]]
        factory.make("delayed", subject="late", ago=0.0)
        if body["next_cursor"] is None:
            break
        cursor = f"&cursor={body['next_cursor']}"
    assert sorted(seen) == sorted(str(run.pk) for run in old)
    assert seen == sorted(seen, reverse=True)


def test_items_have_no_payloads_and_no_secrets(api: Caller, runs: dict[str, Run]) -> None:
    _, body = api("GET", "/runs?limit=200")
    assert not {"input", "output", "steps"} & set(body["items"][0])
    status, run = api("GET", f"/runs/{runs['failed'].pk}", role="viewer")
    assert status == 200
    assert "s3cr3t" not in str(run)


def test_a_list_costs_the_same_number_of_queries_whatever_its_length(api: Caller) -> None:
    def cost() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert api("GET", "/runs?limit=200")[0] == 200
        return len(queries)

    factory.make("done")
    api("GET", "/runs")
    few = cost()
    for n in range(10):
        factory.make("done", subject=f"v{n}")
    assert cost() <= few + 1


def test_dead_letters_page_and_filter(api: Caller, runs: dict[str, Run]) -> None:
    _, body = api("GET", "/dead-letters?limit=200")
    everything = [item["id"] for item in body["items"]]
    assert len(everything) >= 4
    paged: list[int] = []
    cursor = ""
    while True:
        _, page = api("GET", f"/dead-letters?limit=1{cursor}")
        paged += [item["id"] for item in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert paged == everything
    _, of_run = api("GET", f"/dead-letters?run={runs['failed'].pk}")
    assert [item["run_id"] for item in of_run["items"]] == [str(runs["failed"].pk)]
    assert api("GET", "/dead-letters?state=discarded")[1]["items"] == []
    assert len(api("GET", "/dead-letters?state=any&limit=200")[1]["items"]) == len(everything)


@pytest.mark.parametrize("query", ["state=x", "cause=x", "run=x", "limit=0", "cursor=x", "step=%00", "colour=red"])
def test_bad_parameters_of_dead_letters_are_422(api: Caller, query: str) -> None:
    assert api.error("GET", f"/dead-letters?{query}")[0] == 422


def test_catalogue_queues_and_topics(api: Caller, runs: dict[str, Run]) -> None:
    _, found = api("GET", "/workflows")
    assert [(w["workflow"], w["version"], w["live_runs"]) for w in found["items"]] == [("video-upload", 3, len(LIVE))]
    _, versions = api("GET", "/workflows/video-upload/versions")
    assert versions["items"][0]["steps"][0] == "probe"
    assert api.error("GET", "/workflows/nope/versions")[0] == 404
    queues: dict[str, Any] = {q["queue"]: q for q in api("GET", "/queues")[1]["items"]}
    assert queues["media-light"]["depth"] >= 1
    assert queues["media-light"]["oldest_seconds"] > 40
    assert queues["media-heavy"]["workers"] >= 1
    assert api.error("GET", "/topics/gpu")[0] == 404
    assert api("PATCH", "/topics/gpu", {"limit": 2, "reason": "one card broke"})[1]["limit"] == 2
    assert api("GET", "/topics/gpu")[1] | {"updated_at": None} == {
        "name": "gpu", "limit": 2, "origin": "runtime", "set_by": "token:operator", "defined": None, "configured": None,
        "default": None, "default_origin": "none", "running": 0, "waiting": 0, "updated_at": None,
    }  # fmt: skip
    assert [t["name"] for t in api("GET", "/topics")[1]["items"]] == ["gpu"]
    assert api("PATCH", "/topics/gpu", {"limit": None})[1]["limit"] is None
    assert api("PATCH", "/topics/gpu", {"limit": "default"})[1]["origin"] == "none"
    assert api.error("PATCH", "/topics/nope", {"limit": "default"})[0] == 404
    for bad in ({"limit": -1}, {"limit": "2"}, {"limit": True}, {}, {"limit": 2**31}):
        assert api.error("PATCH", "/topics/gpu", bad)[0] == 422
