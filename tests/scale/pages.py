"""What is measured: every page that the walk of the URL table finds, lists under their filters too, and its queries."""

from __future__ import annotations

import json
import re
import time
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from orchestrator.models import BulkOperation, DeadLetter, Run, Step
from tests.harness.urls import addresses

#: Statements that cost nothing to speak of: of transactions, and how long the next may take.
_FRAME = re.compile(r"\s*(SAVEPOINT|RELEASE|ROLLBACK|BEGIN|COMMIT|SET |SELECT set_config)", re.IGNORECASE)
_TABLES = {"workflow_runs", "workflow_steps"}
#: Not looked at: exports and files, what answers with a redirect or starts something, django-rq (it reads Redis alone).
_LEFT_OUT = re.compile(
    r"^/([\w-]+/export/|admin/(rq|auth|login|logout|jsi18n|r/|password|autocomplete|\(?|some)|healthz|readyz|metrics)"
)


@dataclass
class Look:
    """One request. ``scans``: queries whose plan reads a large table from end to end."""

    status: int
    ms: float
    size: int
    queries: list[str] = field(default_factory=list)
    scans: list[str] = field(default_factory=list)

    def as_json(self) -> str:
        return json.dumps(asdict(self))


def visitor() -> Client:
    """Somebody who may see everything."""
    user, _ = User.objects.get_or_create(username="scale", is_superuser=True, is_staff=True)
    client = Client(raise_request_exception=False)
    client.force_login(user)
    return client


def wide_run() -> Run:
    """The run with 5,000 shards."""
    return Run.objects.filter(workflow="mailing", state="running").latest("id")


def samples() -> dict[str, Any]:
    """Values for the parts of addresses."""
    failed = Run.objects.filter(state="failed", workflow="video-ingest").latest("id")
    operation = BulkOperation.objects.values_list("pk", flat=True).first()
    letter = DeadLetter.objects.filter(run=failed).first()
    step = Step.objects.filter(run=failed, state="failed").first()
    found = {
        "run_id": failed.pk, "name": "video-ingest", "subject_id": failed.subject_id,
        "dead_letter_id": letter.pk if letter else 1, "step_id": step.pk if step else 1,
        "object_id": failed.pk, "path": "none.txt",
    }  # fmt: skip
    return {**found, "operation_id": operation} if operation else found


def pages() -> dict[str, str]:
    """Paths by a name that is the same in every database."""
    found: dict[str, str] = {}
    for address in addresses(samples()):
        if not _LEFT_OUT.match(address.path) and not address.path.endswith(("/delete/", "/history/", "/add/")):
            found[address.name or address.route] = address.path
    return found | _more()


def _more() -> dict[str, str]:
    """The same pages in other states."""
    now = timezone.now()
    old = Run.objects.order_by("id").values_list("subject_id", "labels")[3]
    live = Run.objects.filter(state="running", workflow="video-ingest").earliest("id")
    failed = Step.objects.filter(run__state="failed", run__workflow="video-ingest", state="failed").latest("id")
    ended: dict[str, Run] = {
        f"run, {state}": Run.objects.filter(state=state).latest("id") for state in ("done", "cancelled", "compensating")
    }
    waiting = Step.objects.filter(state="waiting").order_by("waiting_for", "id").distinct("waiting_for")
    wide = wide_run().pk
    runs: dict[str, dict[str, str]] = {
        "state": {"state": "failed"}, "live": {"state": "running,compensating"}, "workflow": {"workflow": "refund"},
        "rare workflow": {"workflow": "mailing"}, "version": {"workflow": "video-ingest", "version": "3"},
        "two": {"workflow": "order-fulfilment", "state": "failed"}, "cause": {"cause": "error"},
        "rare cause": {"cause": "deadline"}, "subject": {"subject_id": old[0]},
        "label": {"label": f"customer:{old[1]['customer']}"}, "common label": {"label": "tier:gold"},
        "overdue": {"overdue": "true"}, "hour": {"since": "1h"}, "past": {"until": "1d"},
        "day": {"since": (now - timedelta(days=2)).isoformat(), "until": (now - timedelta(days=1)).isoformat()},
        "step": {"step": "transcode"}, "failed step": {"step": "transcode", "step_state": "failed"},
        "waiting": {"waiting_longer_than": "10m"}, "waiting there": {"step": "ship", "waiting_longer_than": "10m"},
        "text": {"q": old[0]}, "part": {"q": old[0][:-1]},
    }  # fmt: skip
    found = {f"runs, {name}": f"/runs/?{urlencode(query)}" for name, query in runs.items()}
    found |= {f"api runs, {name}": f"/api/v1/runs?{urlencode(query)}" for name, query in runs.items()}
    found |= {name: f"/runs/{run.pk}/" for name, run in ended.items()}
    found |= {f"run, waits for {step.waiting_for}": f"/runs/{step.run_id}/?step={step.step}" for step in waiting}
    return found | {
        "run, step": f"/runs/{failed.run_id}/?{urlencode({'step': failed.step, 'shard': failed.shard})}",
        "run, live": f"/runs/{live.pk}/", "run, wide": f"/runs/{wide}/", "run, wide, all": f"/runs/{wide}/?show=all",
        "run, shards": f"/runs/{wide}/?shards=send", "run, waiting shards": f"/runs/{wide}/?shards=send&state=queued",
        "where, subject": f"/where/?{urlencode({'q': old[0]})}", "where, nothing": "/where/?q=nobody@nowhere.example",
        "dead letters, any": "/dead-letters/?state=any", "audit, all": "/audit/?who=all",
    }  # fmt: skip


def look(client: Client, path: str, *, explain: bool = False, seqscan: bool = True) -> Look:
    """Asks for a page. ``explain``: twice, with nothing cached and again, of which the queries count; and for plans of
    all that was asked, ``seqscan`` allowed or not."""
    if not explain:
        begun = time.perf_counter()
        answer = client.get(path)
        size = len(_content(answer))
        return Look(answer.status_code, (time.perf_counter() - begun) * 1000, size)
    cache.clear()
    asked: list[list[str]] = []
    for _ in range(2):
        with CaptureQueriesContext(connection) as captured:
            answer = client.get(path)
            size = len(_content(answer))
        asked.append([query["sql"] for query in captured if not _FRAME.match(query["sql"])])
    queries = asked[1]
    scans = [sql for sql in asked[0] if scanned(sql, seqscan)]
    return Look(answer.status_code, 0.0, size, queries, scans)


def _content(answer: Any) -> bytes:
    return b"".join(answer.streaming_content) if answer.streaming else bytes(answer.content)


def scanned(sql: str, seqscan: bool) -> set[str]:
    """The large tables that a query's plan reads from end to end."""
    if not re.match(r"\s*(SELECT|WITH)", sql, re.IGNORECASE):
        return set()
    with connection.cursor() as cursor:
        cursor.execute(f"SET enable_seqscan = {'on' if seqscan else 'off'}")
        try:
            cursor.execute("EXPLAIN (FORMAT JSON) " + sql.replace("%", "%%"), [])
            plan = cursor.fetchone()[0]
        finally:
            cursor.execute("RESET enable_seqscan")
    return {name for name in _scans(json.loads(plan) if isinstance(plan, str) else plan) if name in _TABLES}


def _scans(node: Any) -> list[str]:
    if isinstance(node, list):
        return [name for one in node for name in _scans(one)]
    if not isinstance(node, dict):
        return []
    own = [str(node.get("Relation Name"))] if node.get("Node Type") == "Seq Scan" else []
    return own + [name for value in node.values() if isinstance(value, (dict, list)) for name in _scans(value)]
