"""Tables and JSON of a finished benchmark."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.measure import figure
from bench.plan import CONTESTANTS, OURS, WORKLOADS, Workload

HERE = Path(__file__).resolve().parent
LATEST = HERE / "results" / "latest.json"
DOCS = HERE.parent / "docs" / "benchmarks.md"
BEGIN, END = "<!-- results: begin (written by python -m bench --docs) -->", "<!-- results: end -->"


def machine(servers: dict[str, Any]) -> dict[str, Any]:
    """What the figures were measured on."""
    lines = _read("/proc/cpuinfo").splitlines()
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cpu": model,
        "cores": cores,
        "memory_gib": round(memory, 1),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
        **servers,
    }


def commit() -> str:
    """The measured commit, with a plus where files differ from it; empty outside git."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=HERE, capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", "-uno") else "")


def summarise(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each workload and contestant: median, min, max, and paired ratios to each of ours.

    A ratio is Switchyard's figure over the contestant's in the same round.
    """
    rows = []
    for workload in WORKLOADS.values():
        values = {
            name: {row["round"]: figure(row, workload) for row in part}
            for name in CONTESTANTS
            if (part := [r for r in found if r["workload"] == workload.name and r["contestant"] == name])
        }
        for name, by_round in values.items():
            part = [r for r in found if r["workload"] == workload.name and r["contestant"] == name]
            rows.append(
                {
                    "workload": workload.name,
                    "contestant": name,
                    "version": part[0].get("version", ""),
                    "params": part[0].get("params", {}),
                    **_spread([v for v in by_round.values() if v is not None]),
                    "finished": f"{sum(v is not None for v in by_round.values())} of {len(by_round)}",
                    "p95_ms": _spread([r["p95_ms"] for r in part if r.get("ok") and r.get("p95_ms")]),
                    "cpu_s": _spread([r["worker_cpu_s"] for r in part if r.get("ok") and r.get("worker_cpu_s")]),
                    "duplicates": sum(r.get("dups", 0) for r in part),
                    "ratio": {ours: _ratios(values.get(ours, {}), by_round) for ours in OURS if ours in values},
                }
            )
    return rows


def _ratios(ours: dict[int, float | None], theirs: dict[int, float | None]) -> dict[str, Any]:
    return _spread([a / b for number, b in theirs.items() if b and (a := ours.get(number))])


def _spread(values: Sequence[float]) -> dict[str, Any]:
    if not values:
        return {"median": None, "min": None, "max": None}
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def markdown(summary: Sequence[dict[str, Any]], about: dict[str, Any]) -> str:
    """The tables, with the date and the machine above them."""
    m = about["machine"]
    head = [
        f"Measured {about['date'][:10]} at commit {about['commit'] or 'unknown'}, {about['rounds']} rounds in turns, "
        f"{about['workers']} worker processes each. {m['cpu']}, {m['cores']} cores, {m['memory_gib']} GiB, "
        f"{m['system']}, Python {m['python']}, PostgreSQL {m['postgresql']}, Valkey {m['valkey']}, "
        f"data on {m['filesystem']}: {m['commits_per_s']:,} synchronous commits/s by one client. "
        f"Load before the start {m['load_before']}.",
    ]
    if about["quick"]:
        head.append("A quick run with small counts: good for seeing that it works, not for comparing.")
    parts = ["\n\n".join(head)]
    for workload in WORKLOADS.values():
        part = [row for row in summary if row["workload"] == workload.name]
        if part:
            parts.append(_table(workload, part))
    return "\n\n".join(parts) + "\n"


def _table(workload: Workload, part: Sequence[dict[str, Any]]) -> str:
    better = "more" if workload.more_is_better else "less"
    ours = [name for name in OURS if any(name in row["ratio"] for row in part)]
    columns = ["", f"{workload.unit} (min–max)", "runs", "p95 of a run, ms", "CPU of workers, s"]
    columns += [f"{CONTESTANTS[name].title.replace(' of 50', '')} ÷ it" for name in ours]
    lines = [
        f"### {workload.name}: {workload.title} ({better} is better)",
        "",
        "| " + " | ".join(columns) + " |",
        "|---" + "|---:" * (len(columns) - 1) + "|",
    ]
    for row in part:
        title = " ".join([CONTESTANTS[row["contestant"]].title, row["version"]]).strip()
        cells = [title, _text(row), f"{row['params'].get('runs', '')}", _plain(row["p95_ms"], workload.name == "W5")]
        cells += [_plain(row["cpu_s"], False), *(_ratio_text(row, name) for name in ours)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _text(row: dict[str, Any]) -> str:
    if row["median"] is None:
        return "did not finish"
    text = f"{_number(row['median'])} ({_number(row['min'])}–{_number(row['max'])})"
    done, rounds = row["finished"].split(" of ")
    return text if done == rounds else f"{text}; finished {row['finished']}"


def _plain(spread: dict[str, Any], hide: bool) -> str:
    return "" if hide or spread["median"] is None else _number(spread["median"])


def _ratio_text(row: dict[str, Any], ours: str) -> str:
    ratio = row["ratio"].get(ours)
    if not ratio or ratio["median"] is None:
        return ""
    if row["contestant"] == ours:
        return "1"
    return f"{_number(ratio['median'])} ({_number(ratio['min'])}–{_number(ratio['max'])})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def write(found: Sequence[dict[str, Any]], summary: Sequence[dict[str, Any]], about: dict[str, Any]) -> None:
    """``results/latest.json``: what was measured, summed up and line by line."""
    LATEST.parent.mkdir(exist_ok=True)
    LATEST.write_text(json.dumps({**about, "summary": summary, "measurements": found}, indent=2) + "\n")


def write_docs(text: str) -> None:
    """Puts the tables between the marks in ``docs/benchmarks.md``."""
    page = DOCS.read_text()
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    DOCS.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}")


def now() -> str:
    """ISO 8601, UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
