"""Where is it: whatever is pasted has one answer, and "never arrived", "too old" and "no access" are three."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from orchestrator.core.ids import new_run_id
from orchestrator.engine import lookup
from orchestrator.models import AuditRecord, Run
from orchestrator.models.run import LABEL_VALUES
from tests.dashboard.conftest import SignIn
from tests.harness.factory import make

pytestmark = pytest.mark.django_db


def ask(client: Client, q: str) -> str:
    answer = client.get("/where/", {"q": q})
    assert answer.status_code == 200
    return answer.content.decode().replace("\u00a0", " ")


def answers(html: str, run: Run) -> bool:
    return "To tell the customer" in html and f'href="/runs/{run.id}/"' in html


@pytest.fixture
def run(db: None) -> Run:
    return make("retrying", subject="vid-1", labels={"mail": "ann@example.com", "n": "7"})


@pytest.mark.parametrize(
    "around",
    ["{}", " {} ", "\t{}\n", "\u00a0{}\u200b", "\ufeff{}", '"{}"', "<{}>", "“{}”", "{},", "#{}"],
)
@pytest.mark.parametrize("what", ["subject", "id", "label"])
def test_it_is_found_with_what_was_pasted_around_it(viewer: Client, run: Run, around: str, what: str) -> None:
    make("done", subject="another", labels={"mail": "bob@example.com"})
    q = {"subject": "vid-1", "id": str(run.id), "label": "ann@example.com"}[what]
    assert answers(ask(viewer, around.format(q)), run)


@pytest.mark.parametrize("form", ["https://host/runs/{}/?step=a", "run {} please", "{}"])
def test_an_id_is_found_inside_an_address(viewer: Client, run: Run, form: str) -> None:
    assert answers(ask(viewer, form.format(str(run.id).upper())), run)


def test_a_subject_with_spaces_of_its_own_and_key_and_value_of_a_label(viewer: Client, run: Run) -> None:
    odd = make("done", subject=" padded ")
    assert answers(ask(viewer, " padded "), odd)
    assert answers(ask(viewer, "mail:ann@example.com"), run)
    assert answers(ask(viewer, "mail: ann@example.com"), run)
    assert answers(ask(viewer, "mail=ann@example.com"), run), "as the command line writes it"
    assert answers(ask(viewer, "Ann@Example.com"), run)
    assert not answers(ask(viewer, "n:ann@example.com"), run)


def test_a_label_of_several_subjects_lists_their_runs(viewer: Client, run: Run) -> None:
    make("done", subject="vid-2", labels={"mail": "ann@example.com"})
    html = ask(viewer, "ann@example.com")
    assert "2 runs have the label mail ann@example.com, of several subjects." in html
    assert ">vid-1</a>" in html
    assert ">vid-2</a>" in html


def test_a_label_is_found_whatever_its_key_however_old(
    viewer: Client, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = make("done", subject="vid-0", labels={f"key-{n}": f"value-{n}" for n in range(80)} | {"rare": "R-1"})
    for number in range(3):
        make("done", subject=f"later-{number}", labels={"tier": "gold"})
    assert answers(ask(viewer, "R-1"), old)
    assert answers(ask(viewer, "value-79"), old)
    monkeypatch.setattr(lookup, "COMMON", 2)
    monkeypatch.setattr(lookup, "RUNS", 2)
    html = ask(viewer, "gold")
    assert "2 runs have the label tier gold" in html, "of what is common the newest"
    assert "later-2" in html and "later-1" in html and "later-0" not in html


def test_looking_for_a_labels_value_reads_an_index() -> None:
    runs = Run.objects.alias(label_values=LABEL_VALUES).exclude(labels={}).filter(label_values__contains=["x"])
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        assert "workflow_runs_label_values" in runs.order_by().explain()


def pruned() -> None:
    before = {"ended_before": datetime(2026, 1, 15, tzinfo=UTC).isoformat()}
    AuditRecord.objects.create(subject="runs", action="prune", actor="root", role="admin", before=before)


def test_what_never_arrived_is_told_from_what_is_too_old(viewer: Client) -> None:
    young = new_run_id()
    old = new_run_id(int(datetime(2026, 1, 3, tzinfo=UTC).timestamp() * 1000))
    assert "No run has ever been deleted" in ask(viewer, "vid-77")
    for run_id in (young, old, uuid.uuid4()):
        assert "Never arrived" in ask(viewer, str(run_id))
    pruned()
    html = ask(viewer, "vid-77")
    assert "it never arrived, or it is older than that" in html
    html = ask(viewer, str(old))
    assert "Older than the retention" in html
    assert "15 Jan" in html
    assert "Never arrived" in ask(viewer, str(young))
    assert "Never arrived" in ask(viewer, str(uuid.uuid4()))


def test_no_access_is_a_third_answer_and_gives_nothing_away(sign_in: SignIn, run: Run) -> None:
    told = []
    for q in ("vid-1", "vid-77"):
        answer = sign_in("").get("/where/", {"q": q})
        assert answer.status_code == 403
        assert b"You have no access to runs" in answer.content
        told.append(answer.content)
    assert told[0] == told[1]


def test_support_can_hand_out_a_link_from_here(sign_in: SignIn, viewer: Client, run: Run) -> None:
    link = f"/runs/{run.id}/share/"
    assert link in ask(sign_in("support"), "vid-1")
    assert link not in ask(viewer, "vid-1")


@pytest.mark.parametrize("q", ["\x00", "x" * 600, "'; DROP TABLE x; --", "%", "a:b:c", ":", "\u202e", "00000000-" * 4])
def test_whatever_is_asked_it_answers(viewer: Client, run: Run, q: str) -> None:
    html = ask(viewer, q)
    assert "Never arrived" in html or 'role="alert"' in html or "Ask for one thing" in html
    assert Run.objects.get().updated_at <= timezone.now()
