"""``ward``: runs of the factory on a system that is otherwise well, and a doctor who looks at them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis
from django.db import connection
from django.utils import timezone

from orchestrator.core import metric_names
from orchestrator.core.actor import Actor
from orchestrator.core.states import RUN_TERMINAL
from orchestrator.engine import rollup
from orchestrator.engine.db import caller_connection
from orchestrator.engine.doctor import Examination, Scope
from orchestrator.engine.doctor.keep import Repaired, repair
from orchestrator.models import AuditRecord, Beat, Run
from orchestrator.transport import doctor
from orchestrator.transport.broker import connection as redis_connection
from orchestrator.transport.reissue import Reissuer
from tests.harness.factory import make

DOCTOR = Actor("dora", "admin")


class Ward:
    """One test's system. ``look`` answers (invariant, id) of all that is broken."""

    def __init__(self) -> None:
        Beat.objects.create(name="dispatcher", holder="here", beat_at=timezone.now())

    def admit(self, stage: str, **run: Any) -> Run:
        """A run of the factory with its tickets issued and its end counted."""
        made = make(stage, **run)
        self.settle(made)
        return made

    def settle(self, run: Run) -> None:
        """Counters and tickets of a run made by hand."""
        if run.state in RUN_TERMINAL:
            labels = {"workflow": run.workflow, "state": run.state, "le": "600.0"}
            rollup.add(metric_names.RUN_DURATION_BUCKET, labels)
        Reissuer(redis_connection()).if_emptied(caller_connection())
        redis_connection().delete("switchyard:sentinel")

    def sql(self, statement: str, *params: Any) -> None:
        """What no code of ours would do. Constraints that are deferred are checked first, so that ALTER may follow."""
        with connection.cursor() as cursor:
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
            cursor.execute(statement, params)

    def examine(self, scope: Scope | None = None, *, quick: bool = False) -> Examination:
        return doctor.examine(caller_connection(), scope, quick=quick)

    def look(self, scope: Scope | None = None) -> list[tuple[str, str]]:
        found = self.examine(scope)
        assert found.unchecked == []
        return [(b.invariant, b.id) for b in found.broken]

    def names(self) -> set[str]:
        return {name for name, _ in self.look()}

    def repair(self) -> tuple[Examination, list[Repaired]]:
        return repair(caller_connection(), self.examine, DOCTOR)

    def mend(self, *invariants: str) -> list[Repaired]:
        """Expects exactly these to be broken, mends them, and expects nothing to be broken and each audited."""
        assert self.names() == set(invariants)
        found, done = self.repair()
        assert [b.as_json() for b in found.broken] == []
        assert done
        audit = list(AuditRecord.objects.filter(action="repair"))
        assert audit
        assert all(
            (a.actor, a.role) == ("dora", "admin") and a.before is not None and a.after is not None for a in audit
        )
        return done


@pytest.fixture
def ward(db: None, settings: Any) -> Iterator[Ward]:
    """An empty system with a dispatcher that beats and an empty Redis."""
    client = redis.Redis.from_url(settings.REDIS_URL)
    client.flushdb()
    yield Ward()
    client.flushdb()
