"""Pages at a million runs (SCALE_RUNS) against a thousand: all that the walk finds.

Each size has a database of its own on the server of the tests, and a process that answers on it; the two are asked in
turn, page by page, so that whatever else the machine does meets both.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from statistics import median
from typing import Any

import pytest

from orchestrator.testing.disposable import scratch_database
from tests.scale.test_pages_quick import ANYWHERE, MOST_BYTES, MOST_QUERIES

pytestmark = [pytest.mark.long, pytest.mark.timeout(7200)]
RUNS = int(os.environ.get("SCALE_RUNS", "1000000"))
SMALL = 1000
#: Times that each page is asked for in either database, after once to warm up.
ROUNDS = int(os.environ.get("SCALE_ROUNDS", "11"))
#: The large one may take so many times as long, and this many milliseconds more, which is what a clock can tell.
MOST_TIMES, GRAIN = 1.5, 4.0
#: Milliseconds for a list under a filter.
MOST_FILTERED = 1000.0


class Probe:
    """A process that answers requests on one database."""

    def __init__(self, database: str, runs: int) -> None:
        self.environment = {**os.environ, "DATABASE_URL": database, "DJANGO_SETTINGS_MODULE": "orchestrator.settings"}
        self._manage("migrate", "-v0")
        self.made = json.loads(self._manage("demo_data", "--runs", str(runs), "--json"))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.scale.probe"], env=self.environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self.pages: dict[str, str] = self.ask(pages=True)

    def _manage(self, *arguments: str) -> str:
        command = [sys.executable, "manage.py", *arguments]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    def ask(self, **question: Any) -> Any:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the probe has ended"
        return json.loads(line)

    def end(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(20)


@pytest.fixture(scope="module")
def probes(django_db_setup: None, django_db_blocker: Any) -> Iterator[tuple[Probe, Probe]]:
    with django_db_blocker.unblock(), scratch_database() as small, scratch_database() as large:
        pair = (Probe(small, SMALL), Probe(large, RUNS))
        print(f"\n{pair[1].made}")
        yield pair
        for probe in pair:
            probe.end()


def test_every_page_is_as_quick_as_with_a_thousand_runs(probes: tuple[Probe, Probe]) -> None:
    problems, table = [], []
    small, large = probes
    for name in sorted(small.pages.keys() & large.pages.keys()):
        first = [probe.ask(page=name, explain=False) for probe in probes]
        if any(look["status"] != 200 for look in first):
            problems += [f"{name}: {look['status']}" for look in first if look["status"] >= 500]
            continue
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(ROUNDS):
            for probe, kept in zip(probes, times, strict=True):
                kept.append(probe.ask(page=name, explain=False)["ms"])
        before, after = median(times[0]), median(times[1])
        table.append((after / before, before, after, name))
        # Under a filter the small one has fewer rows to show than a page holds: there only the time itself counts.
        most_ms = MOST_FILTERED if ", " in name else MOST_TIMES * before + GRAIN
        if after > most_ms and name not in ANYWHERE:
            problems.append(f"{name} {large.pages[name]}: {after:.0f} ms, with {SMALL:,} runs {before:.0f} ms")
    print(
        "\n".join(
            f"{ratio:5.2f} {before:6.0f} ms {after:6.0f} ms  {name}" for ratio, before, after, name in sorted(table)
        )
    )
    assert len(table) > 60
    assert not problems, "\n".join(problems)


def test_no_page_asks_much_or_reads_a_table_from_end_to_end(probes: tuple[Probe, Probe]) -> None:
    problems = []
    large = probes[1]
    for name, path in large.pages.items():
        look = large.ask(page=name, explain=True)
        if look["status"] != 200:
            continue
        if len(look["queries"]) > MOST_QUERIES:
            problems.append(f"{name} {path}: {len(look['queries'])} queries")
        problems += [f"{name} {path} scans: {sql[:200]}" for sql in look["scans"] if name not in ANYWHERE]
        if look["size"] > MOST_BYTES:
            problems.append(f"{name} {path}: {look['size']:,} bytes")
    assert not problems, "\n".join(problems)
