"""Summing up a benchmark: medians, ratios within a round, measurements that did not finish."""

from __future__ import annotations

import pytest

from bench import plan, report
from bench.install import PEERS


def row(contestant, round_, value, workload="W1", ok=True, **more):
    figure = plan.WORKLOADS[workload].figure
    return {"contestant": contestant, "workload": workload, "round": round_, "ok": ok, figure: value, **more}


def of(summary, contestant):
    return next(r for r in summary if r["contestant"] == contestant)


ABOUT = {
    "date": "2030-01-02T03:04:05+00:00",
    "commit": "abc1234",
    "rounds": 3,
    "workers": 2,
    "quick": False,
    "machine": {
        "cpu": "A CPU",
        "cores": 2,
        "memory_gib": 24.0,
        "system": "Linux 6",
        "python": "3.11.7",
        "load_before": 0.1,
        "postgresql": "18.6",
        "valkey": "9.1.2",
        "filesystem": "ext4",
        "commits_per_s": 2000,
    },
}


def test_ratios_pair_the_measurements_of_one_round():
    found = [row("switchyard", n, v) for n, v in ((1, 1000), (2, 400), (3, 900))]
    found += [row("celery", n, v) for n, v in ((1, 500), (2, 100), (3, 300))]
    ratio = of(report.summarise(found), "celery")["ratio"]["switchyard"]
    assert ratio == {"median": 3.0, "min": 2.0, "max": 4.0}


def test_a_measurement_that_did_not_finish_counts_in_no_ratio_and_is_named():
    found = [row("switchyard", 1, 1000), row("switchyard", 2, 800)]
    found += [row("dbos", 1, 100), row("dbos", 2, None, ok=False, notes="too slow")]
    summary = report.summarise(found)
    assert of(summary, "dbos")["ratio"]["switchyard"]["max"] == 10.0
    assert of(summary, "dbos")["finished"] == "1 of 2"
    assert "finished 1 of 2" in report.markdown(summary, ABOUT)


def test_a_peer_that_never_finished_has_a_row_without_figures():
    found = [row("switchyard", 1, 1000), row("dbos", 1, None, ok=False)]
    text = report.markdown(report.summarise(found), ABOUT)
    assert "| DBOS | did not finish |" in text


def test_the_table_says_which_way_is_better():
    found = [row("switchyard", 1, 1000), row("switchyard", 1, 20.0, workload="W4")]
    text = report.markdown(report.summarise(found), ABOUT)
    assert "W1: chains of 5 steps, all submitted at once (more is better)" in text
    assert "(less is better)" in text


def test_docs_keep_what_is_around_the_tables(tmp_path, monkeypatch):
    page = tmp_path / "benchmarks.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    monkeypatch.setattr(report, "DOCS", page)
    report.write_docs("new\n")
    assert page.read_text() == f"before\n{report.BEGIN}\n\nnew\n\n{report.END}\nafter\n"


def test_the_page_has_its_marks():
    page = report.DOCS.read_text()
    assert page.index(report.BEGIN) < page.index(report.END)


@pytest.mark.parametrize("contestant", plan.CONTESTANTS.values(), ids=lambda c: c.name)
def test_every_contestant_has_a_script_and_pins(contestant):
    assert (PEERS / contestant.script).is_file()
    if contestant.venv:
        lines = (PEERS / f"requirements-{contestant.venv}.txt").read_text().split()
        assert lines and all("==" in line for line in lines)


def test_who_takes_part_in_what():
    w2, quick = plan.WORKLOADS["W2-10k"], plan.WORKLOADS["W1"]
    assert plan.arguments(plan.CONTESTANTS["celery"], w2, quick=False) is None
    assert plan.arguments(plan.CONTESTANTS["switchyard"], w2, quick=False) == ["--workload", "W2", "--shards", "10000"]
    assert plan.arguments(plan.CONTESTANTS["dbos"], quick, quick=True)[-2:] == ["--runs", "200"]
    assert plan.arguments(plan.CONTESTANTS["switchyard"], quick, quick=False, scale=0.1)[-1] == "100"
