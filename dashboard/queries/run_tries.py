"""Failed attempts of one run: what the parts of its page need of them, read at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from django.db.models import Q

from orchestrator.models import Attempt, Run, Step

#: Failed attempts that are read for the drawings, and the latest of the run that its trail may name.
ATTEMPTS, LATEST = 600, 7


@dataclass
class Tries:
    """``by_row``: attempts of each row that was asked for, oldest first; ``latest``: of the whole run, newest first.

    ``none``: the run has none at all.
    """

    by_row: dict[int, list[Attempt]] = field(default_factory=dict)
    latest: list[Attempt] = field(default_factory=list)

    none: bool = False

    def of(self, row: Step) -> list[Attempt]:
        """Of one row; it is asked for where it was not among those read."""
        if self.none or not row.attempt:
            return []
        if row.pk not in self.by_row:
            self.by_row[row.pk] = list(Attempt.objects.filter(step_row=row).order_by("-id")[:ATTEMPTS])[::-1]
        return self.by_row[row.pk]


def read_tries(run: Run, rows: Sequence[Step]) -> Tries:
    """The attempts of these rows and the latest of the run. One query, without tracebacks kept elsewhere."""
    wanted = {row.pk for row in rows if row.attempt}
    latest = Attempt.objects.filter(run=run).order_by("-id").values("pk")[:LATEST]
    found = Attempt.objects.filter(Q(step_row__in=wanted) | Q(pk__in=latest), run=run).select_related("step_row")
    heavy = ("step_row__output", "step_row__item", "step_row__log", "step_row__error")
    newest = list(found.defer(*heavy).order_by("-id")[:ATTEMPTS])
    by_row: dict[int, list[Attempt]] = defaultdict(list)
    for attempt in reversed(newest):
        if attempt.step_row_id in wanted:
            by_row[attempt.step_row_id].append(attempt)
    return Tries({pk: by_row[pk] for pk in wanted}, newest[:LATEST])
