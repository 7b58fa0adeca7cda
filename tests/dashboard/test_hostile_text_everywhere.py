"""C92, C100: what handlers and people wrote is text wherever it is shown, and no secret in it is shown at all.

One run is filled with markup and secrets wherever a handler, a submitter or an operator can write; then every address
that the walk of the URL table finds is read, pages, fragments, API, exports and admin.
"""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client

from orchestrator.core.actor import Actor
from orchestrator.core.bulk import BulkVerb
from orchestrator.engine import bulk
from orchestrator.models import Attempt, AuditRecord, BulkOperation, DeadLetter, Pause, Run, Step
from tests.harness.factory import make
from tests.harness.urls import addresses

pytestmark = pytest.mark.django_db
SECRET = "s3cr3t-X9"
#: C92's list, with what templates, terminals and attributes would take for their own.
MARKUP = (
    "<script>x9()</script>", "<img src=x9 onerror=alert(1)>", "</textarea><script>x9()</script>", "{{7*191}}",
    "{% debug %}", '" onmouseover="x9()', "</title><b id=x9>",
)  # fmt: skip
TEXT = " ".join(MARKUP) + f" \x1b[31m postgres://u:{SECRET}@h/db password={SECRET} Authorization: Bearer {SECRET}"
VALUE = {
    "db": {"Password": SECRET, "url": f"https://u:{SECRET}@h/x"},
    "api_key": SECRET,
    "note": TEXT,
    "n": [{"token": SECRET}],
}
ERROR = {"type": "E<b id=x9>", "message": TEXT, "traceback": f'  File "a.py", line 1\n    raise E("{TEXT}")\n'}
#: What must be found nowhere: markup that has stayed markup, and what a template would have made of it.
ALIVE = re.compile(r"<script>x9|<img src=x9|<b id=x9|\" onmouseover=\"x9|1337|sys\.path")


def spoil() -> dict[str, Run]:
    """Failed and live runs whose every text is hostile."""
    runs = {stage: make(stage, subject=f"evil-{stage}-{MARKUP[0]}") for stage in ("partial", "mid_fan_out", "retrying")}
    Run.objects.update(
        input=VALUE, output=VALUE, error={**ERROR, "step": "transcode", "shard": "480p"}, labels={"x": MARKUP[1]}
    )
    Step.objects.update(output=VALUE, error=ERROR, item=VALUE, note=TEXT, log=TEXT, external=TEXT)
    Attempt.objects.update(error=ERROR)
    DeadLetter.objects.update(error=ERROR, note=TEXT)
    AuditRecord.objects.filter(action="submit").update(reason=TEXT, after=VALUE)
    AuditRecord.objects.create(
        run=runs["partial"], action="note", actor=MARKUP[0], role="operator", reason=TEXT, after=VALUE
    )
    now = runs["partial"].submitted_at
    Pause.objects.create(
        kind="queue", name="default", reason=TEXT, actor=MARKUP[0], until=now.replace(year=now.year + 1)
    )
    ids = [str(runs["mid_fan_out"].pk)]
    bulk.start(BulkVerb.CANCEL, Actor("olga", "operator"), TEXT, filters=None, ids=ids)
    return runs


def reader(name: str, **flags: bool) -> Client:
    user = User.objects.create_user(name, **flags)
    client = Client(raise_request_exception=False)
    client.force_login(user)
    return client


def test_it_is_text_and_masked_at_every_address() -> None:
    runs = spoil()
    client, bad, read = reader("root", is_superuser=True, is_staff=True), [], 0
    for stage, run in runs.items():
        letter = DeadLetter.objects.filter(run=run).first()
        samples = {
            "run_id": run.pk, "object_id": run.pk, "subject_id": run.subject_id, "name": "video-upload",
            "operation_id": BulkOperation.objects.get().pk, "dead_letter_id": letter.pk if letter else 1,
        }  # fmt: skip
        found = {address.path for address in addresses(samples)}
        if stage != "partial":
            found = {path for path in found if str(run.pk) in path or "export" in path}
        found |= {
            f"/runs/{run.pk}/?step=transcode&shard=480p",
            f"/runs/{run.pk}/?show=all",
            f"/runs/{run.pk}/?shards=transcode",
        }
        found |= {f"/where/?q=evil-{stage}", "/dead-letters/?state=any", "/audit/?who=all", "/runs/?q=evil"}
        for model, row in (("step", Step.objects.filter(run=run).first()), ("deadletter", letter)):
            found |= {f"/admin/orchestrator/{model}/{row.pk}/change/"} if row else set()
        for path in sorted(found):
            for headers in ({}, {"HX-Request": "true"}):
                answer = client.get(path, headers=headers)
                if answer.status_code != 200:
                    continue
                body = b"".join(answer.streaming_content) if answer.streaming else answer.content
                text, read = body.decode("utf-8", "replace"), read + 1
                if SECRET in text:
                    at = text.index(SECRET)
                    bad.append(f"{path} shows a secret: {text[max(0, at - 120) : at + 20]!r}")
                if not answer["Content-Type"].startswith(("application/json", "text/csv", "text/plain")):
                    bad += [f"{path} has it as markup: {m[0]}" for m in list(ALIVE.finditer(text))[:2]]
    assert read > 150
    assert bad == [], "\n".join(bad)


def test_it_is_there_to_be_read() -> None:
    """Nothing above passes because nothing is shown."""
    run = spoil()["partial"]
    text = reader("root", is_superuser=True).get(f"/runs/{run.pk}/").content.decode()
    assert "&lt;script&gt;x9()&lt;/script&gt;" in text and "[masked]" in text
    handler_sees = Run.objects.get(pk=run.pk).input
    assert handler_sees["db"]["Password"] == SECRET, "only what is shown is masked"
