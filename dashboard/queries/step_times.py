"""The versions of a workflow beside one another: how long each step takes, and which got slower."""

from __future__ import annotations

from dataclasses import dataclass

from dashboard.templatetags.switchyard import rough
from orchestrator.engine.explain_words import listed
from orchestrator.engine.step_times import Times, times

#: Versions beside one another at most.
MOST = 4
#: So much longer is worth a word: by half, and by a second.
SLOWER, LEAST = 1.5, 1.0


@dataclass(frozen=True)
class Row:
    """A step. ``cells``: its times on each version, None where too few runs are known. ``word``: what changed."""

    step: str
    cells: list[Times | None]
    word: str
    is_slower: bool


@dataclass(frozen=True)
class Compared:
    """The table: versions from the one shown to older ones. ``late``: looking took too long."""

    versions: list[int]
    rows: list[Row]
    whole: Row | None
    late: bool

    @property
    def sentence(self) -> str:
        """What to know of it first; empty where too little is known."""
        if self.whole is None or self.whole.cells[0] is None:
            return ""
        own = self.whole.cells[0]
        text = f"A run of v{self.versions[0]} takes {rough(own.p50)}, and {rough(own.p95)} in a bad case (p95)"
        slower = [row.step for row in self.rows if row.is_slower]
        if slower:
            return f"{text}; slower than on an earlier version: {listed(slower, 4)}."
        return f"{text}."


def compared(workflow: str, shown: int, versions: list[int], steps: list[str]) -> Compared:
    """The version shown beside up to three others, the newest first; steps in the order of its definition."""
    beside = [shown, *sorted((v for v in versions if v != shown), reverse=True)[: MOST - 1]]
    known = times(workflow, sorted(beside))
    if known is None:
        return Compared(beside, [], None, True)
    kept = [shown, *(v for v in beside[1:] if (v, "") in known)]
    rows = [_row(step, kept, known) for step in steps]
    return Compared(kept, rows, _row("", kept, known) if (shown, "") in known else None, False)


def _row(step: str, versions: list[int], known: dict[tuple[int, str], Times]) -> Row:
    cells = [known.get((version, step)) for version in versions]
    own = cells[0]
    other = next(((v, cell) for v, cell in zip(versions[1:], cells[1:], strict=True) if cell), None)
    if own is None or other is None:
        return Row(step, cells, "", False)
    version, before = other
    longer, shorter = own.p50 - before.p50, before.p50 - own.p50
    if longer > LEAST and own.p50 > SLOWER * before.p50:
        far = own.p50 / before.p50 if before.p50 > 0.05 else 0
        word = f"{far:.1f} times as long as on v{version}" if 0 < far < 1000 else f"much longer than on v{version}"
        return Row(step, cells, word, True)
    if shorter > LEAST and before.p50 > SLOWER * own.p50:
        return Row(step, cells, f"faster than on v{version}", False)
    return Row(step, cells, f"as on v{version}", False)
