"""What a bulk operation would do, counted: shown before anything is done."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from django.db import connection

from orchestrator.core.bulk import BulkVerb
from orchestrator.core.errors import Invalid
from orchestrator.core.mask import mask_text
from orchestrator.engine.bulk_choice import MAX, Choice, rows_of
from orchestrator.engine.find import TooBroad, patiently

#: Seconds that each count may take.
PATIENCE = 10.0


@dataclass(frozen=True)
class BulkPreview:
    """``total`` in the set, ``eligible`` of them in a state that allows it now, ``missing`` not there at all.

    ``states``, ``versions`` (``"video-upload v3"``) and ``steps`` (which failed) count the set, most first.
    ``side_effects`` counts what would run again of the calls that handlers marked with ``ctx.external``, by the name
    they gave; None when looking took too long.
    """

    verb: BulkVerb
    total: int
    eligible: int
    missing: int
    states: dict[str, int]
    versions: dict[str, int]
    steps: dict[str, int]
    side_effects: dict[str, int] | None


_HELD = "r.state = 'compensating' AND r.compensation = 'pending'"
_RETRIABLE = f"(r.state IN ('failed', 'cancelled') OR {_HELD})"
_ELIGIBLE = {
    BulkVerb.REPLAY: f"(d.state = 'open' AND {_RETRIABLE})",
    BulkVerb.DISCARD: "(d.state = 'open')",
    BulkVerb.RETRY: _RETRIABLE,
    BulkVerb.CANCEL: f"(r.state IN ('running', 'compensating') AND (r.stop IS NULL OR {_HELD}))",
}

# Where a run failed, or stood when it was stopped. While it undoes, ``current_step`` names a compensation.
_STEP_OF_RUN = """coalesce(nullif(r.error->>'step', ''), CASE WHEN r.stop IS NULL THEN nullif(r.current_step, '') ELSE (
    SELECT s.step FROM workflow_steps s WHERE s.run_id = r.id AND s.kind = 'step' AND s.state <> 'skipped'
    ORDER BY s.state IN ('failed', 'rejected') DESC, s.state = 'cancelled' DESC, s.id DESC LIMIT 1) END)"""
# An undo is called by what it undoes.
_STEP_OF_LETTER = """CASE WHEN s.kind = 'compensation' THEN 'undo' || coalesce(' of ' || u.step, ' of the run')
    ELSE d.step END"""
_OF_LETTER = "LEFT JOIN workflow_steps s ON s.id = d.step_row_id LEFT JOIN workflow_steps u ON u.id = s.undoes_id"


def count(choice: Choice) -> BulkPreview:
    """Counts the set. Changes nothing.

    Raises:
        TooBroad: it takes too long.
        Invalid: the set is larger than is taken.
    """
    chosen, params = rows_of(choice)
    alias, joined = "r", "workflow_runs r ON r.id = c.run_id"
    if not choice.verb.of_runs:
        alias = "d"
        joined = f"workflow_dead_letters d ON d.id = c.letter_id {_OF_LETTER} LEFT JOIN {joined}"
    step = _STEP_OF_RUN if choice.verb.of_runs else _STEP_OF_LETTER
    query = f"""
        WITH c AS MATERIALIZED ({chosen})
        SELECT {alias}.state, {alias}.workflow, {alias}.version, {step}, count(*),
               count(*) FILTER (WHERE {_ELIGIBLE[choice.verb]})
        FROM c LEFT JOIN {joined} GROUP BY 1, 2, 3, 4"""
    groups = patiently(lambda: _fetch(query, params), PATIENCE)
    total = sum(row[4] for row in groups)
    check_size(total)
    found = [row for row in groups if row[0] is not None]
    return BulkPreview(
        choice.verb,
        total,
        sum(row[5] for row in groups),
        total - sum(row[4] for row in found),
        _sums((row[0], row[4]) for row in found),
        _sums((f"{row[1]} v{row[2]}", row[4]) for row in found),
        _sums((row[3], row[4]) for row in found if row[3]),
        _side_effects(choice.verb, chosen, params),
    )


def check_size(total: int) -> None:
    """Raises Invalid for a set larger than is taken."""
    if total > MAX:
        raise Invalid(f"over {MAX:,} match; narrow it down by workflow, step, cause or time", field="filter")


def _side_effects(verb: BulkVerb, chosen: str, params: list[Any]) -> dict[str, int] | None:
    """Rows that would run again and marked calls to the outside when they ran before."""
    if verb in (BulkVerb.DISCARD, BulkVerb.CANCEL):
        return {}
    again = "s.state = 'cancelled' OR s.undone_at IS NOT NULL"
    if verb is BulkVerb.RETRY:
        again += " OR s.state IN ('failed', 'rejected')"
    steps = f"""
        SELECT s.id, s.external FROM (SELECT DISTINCT run_id FROM c) r JOIN workflow_steps s ON s.run_id = r.run_id
        WHERE s.kind = 'step' AND s.external IS NOT NULL AND ({again})"""
    if verb is BulkVerb.REPLAY:
        steps += """
        UNION SELECT s.id, s.external
        FROM c JOIN workflow_dead_letters d ON d.id = c.letter_id JOIN workflow_steps s ON s.id = d.step_row_id
        WHERE d.state = 'open' AND s.external IS NOT NULL"""
    query = f"""
        WITH c AS MATERIALIZED ({chosen})
        SELECT m.name, count(*) FROM ({steps}) x CROSS JOIN LATERAL string_to_table(x.external, E'\\n') AS m(name)
        GROUP BY 1"""
    try:
        found = patiently(lambda: _fetch(query, params), PATIENCE)
    except TooBroad:
        return None
    return _sums((mask_text(name), number) for name, number in found)


def _fetch(query: str, params: list[Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(query, params)
        return list(cursor.fetchall())


def _sums(pairs: Any) -> dict[str, int]:
    counted: Counter[str] = Counter()
    for name, number in pairs:
        counted[name] += number
    return dict(counted.most_common())
