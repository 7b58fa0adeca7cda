"""Dead letters gathered into incidents, what people note of them, and what came back after a fix."""

from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from django.utils import timezone

from dashboard.queries.incidents import incidents
from orchestrator.core.actor import Actor
from orchestrator.core.errors import Conflict, Invalid, NotAllowed
from orchestrator.engine import bulk, operate
from orchestrator.engine.find_dead_letters import DeadLetterFilters
from orchestrator.models import AuditRecord, DeadLetter, Incident
from tests.harness.factory import make

pytestmark = pytest.mark.django_db
SAM = Actor("sam", "support")


def letter(fingerprint, step="reserve", shard="", *, ago=1.0, queue="media-heavy", version=3, workflow="orders"):
    """An open dead letter that failed so many hours ago."""
    run = make("failed")
    at = timezone.now() - timedelta(hours=ago)
    found = DeadLetter.objects.get(run=run)
    type(found.step_row).objects.filter(pk=found.step_row_id).update(queue=queue)
    values = {"fingerprint": fingerprint, "step": step, "shard": shard, "first_at": at, "last_at": at}
    values |= {"error": {"type": fingerprint.upper(), "message": "x"}, "version": version, "workflow": workflow}
    DeadLetter.objects.filter(pk=found.pk).update(**values)
    return found.pk


def gathered():
    return [(one.count, sorted(one.fingerprints)) for one in incidents()[0]]


def test_one_step_is_one_incident():
    letter("a", "reserve", queue="q1")
    letter("a", "reserve", queue="q1")
    letter("b", "reserve", queue="q2")
    letter("c", "reserve", queue="q3", workflow="others")
    letter("d", "ship", queue="q4")
    assert sorted(gathered()) == [(1, ["c"]), (1, ["d"]), (3, ["a", "b"])]
    assert incidents()[0][0].heading == "3 failures, 2 causes at reserve"


def test_one_shard_is_one_incident_over_steps():
    letter("a", "reserve", "BER-1", queue="q1")
    letter("b", "ship", "BER-1", queue="q2")
    letter("c", "ship", "RTM-2", queue="q3")
    letter("e", "count", queue="q4")
    first = incidents()[0][0]
    assert sorted(first.fingerprints) == ["a", "b", "c"], "c shares the step of b"
    DeadLetter.objects.filter(fingerprint="c").update(step="pack")
    assert [sorted(one.fingerprints) for one in incidents()[0] if one.count > 1] == [["a", "b"]]
    assert next(one for one in incidents()[0] if one.count > 1).title == "2 causes of shard BER-1"


def test_one_queue_is_one_incident_when_it_began_together():
    letter("a", "reserve", queue="gpu", ago=2.0)
    letter("b", "ship", queue="gpu", ago=2.2)
    letter("c", "pack", queue="gpu", ago=9.0)
    assert sorted(gathered()) == [(1, ["c"]), (2, ["a", "b"])]
    assert next(one for one in incidents()[0] if one.count == 2).title == "2 causes on queue gpu"


def test_far_apart_in_time_is_not_one():
    letter("a", "reserve", ago=1.0)
    letter("b", "reserve", ago=3.0)
    assert sorted(gathered()) == [(1, ["a"]), (1, ["b"])]


def test_versions_are_a_facet(viewer):
    for version in (3, 3, 4):
        letter("a", version=version)
    one = incidents()[0][0]
    assert one.versions == [(4, 1), (3, 2)]
    html = viewer.get("/dead-letters/").content.decode()
    assert '<a class="lnk" href="?fingerprint=a&amp;version=4">v4</a> 1' in html
    listed = viewer.get("/dead-letters/?fingerprint=a&version=4").content.decode()
    assert listed.split("<tbody>")[1].count("data-row") == 1


def test_replay_by_incident_leads_to_a_look_at_its_set_and_no_other(sign_in):
    mine = [letter("a", "reserve"), letter("b", "reserve")]
    letter("z", "pack", queue="elsewhere", ago=5)
    client = sign_in("operator")
    html = client.get("/dead-letters/").content.decode()
    link = html.split(">Replay 2…")[0].rsplit('href="', 1)[1].split('"')[0].replace("&amp;", "&")
    assert sorted(parse_qs(urlsplit(link).query)["fingerprint"]) == ["a", "b"]
    seen = client.get(link).content.decode()
    assert "Replay 2 dead letters?" in seen
    form = seen.split('action="/bulk/start/"')[1]
    assert form.count('name="fingerprint"') == 2
    made = bulk.start("replay", Actor("olga", "operator"), "again", filters=DeadLetterFilters(fingerprints=("a", "b")))
    assert sorted(int(item.target) for item in made.items.all()) == sorted(mine)


def test_what_is_noted_stands_with_it_and_in_the_audit(sign_in, viewer):
    letter("a")
    letter("b")
    client = sign_in("support")
    page = client.get("/dead-letters/?fingerprint=a&fingerprint=b").content.decode()
    assert "Add a note…" in page
    data = {"fingerprint": ["a", "b"], "owner": "warehouse", "note": "API down; password=hunter2", "fixed_in": "",
            "seen": "", "back": "/dead-letters/?fingerprint=a"}  # fmt: skip
    answer = client.post("/dead-letters/note/", data)
    assert (answer.status_code, answer["Location"]) == (302, "/dead-letters/?fingerprint=a")
    html = viewer.get("/dead-letters/").content.decode()
    assert "warehouse" in html
    assert "API down" in html
    assert "hunter2" not in html
    assert "a note…" not in viewer.get("/dead-letters/?fingerprint=a").content.decode().lower()
    record = AuditRecord.objects.get(action="note_incident")
    assert (record.actor, record.role, record.before, record.after["owner"]) == (
        "support",
        "support",
        None,
        "warehouse",
    )


def test_what_fails_again_after_the_fix_came_back(viewer):
    letter("a", ago=3.0)
    row = operate.note_incident(["a"], SAM, fixed_in="v4")
    assert row.fixed_at is not None
    assert incidents()[0][0].came is None
    assert "Fixed" in viewer.get("/dead-letters/").content.decode()
    letter("a", ago=0, version=4)
    came = incidents()[0][0].came
    assert (came.count, came.versions) == (1, [4])
    html = viewer.get("/dead-letters/").content.decode()
    assert "Came back, 1 failure" in html
    again = operate.note_incident(["a"], SAM, owner="sam", fixed_in="v4", seen=row.updated_at)
    assert again.fixed_at == row.fixed_at, "only a new fix starts a new clock"
    later = operate.note_incident(["a"], SAM, fixed_in="v5", seen=again.updated_at)
    assert later.fixed_at > row.fixed_at
    assert operate.note_incident(["a"], SAM, note="not fixed", seen=later.updated_at).fixed_at is None


def test_two_who_note_at_once_do_not_undo_one_another(sign_in):
    letter("a")
    operate.note_incident(["a"], SAM, owner="sam")
    with pytest.raises(Conflict, match="sam has changed this"):
        operate.note_incident(["a"], Actor("olga", "operator"), owner="olga")
    client = sign_in("support")
    page = client.post("/dead-letters/note/", {"fingerprint": "a", "owner": "o", "seen": ""}, follow=True)
    assert "Sam has changed this meanwhile" in page.content.decode()
    assert Incident.objects.get().owner == "sam"


def test_a_new_cause_joins_what_is_noted():
    letter("a")
    row = operate.note_incident(["a"], SAM, owner="sam")
    letter("b")
    operate.note_incident(["b", "a"], SAM, owner="sam", seen=row.updated_at)
    assert Incident.objects.get().fingerprints == ["a", "b"]


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"fingerprints": []}, Invalid),
        ({"fingerprints": ["none"], "note": "x"}, Invalid),
        ({"fingerprints": ["a\x00"], "note": "x"}, Invalid),
        ({"fingerprints": ["a"]}, Invalid),
        ({"fingerprints": ["a"], "owner": "x" * 121}, Invalid),
        ({"fingerprints": ["a"], "note": "x" * 5001}, Invalid),
        ({"fingerprints": [str(n) for n in range(101)], "note": "x"}, Invalid),
        ({"fingerprints": ["a"], "note": "x", "actor": Actor("v", "viewer")}, NotAllowed),
    ],
)
def test_what_cannot_be_noted(given, error):
    letter("a")
    with pytest.raises(error):
        operate.note_incident(**{"actor": SAM, **given})
    assert not Incident.objects.exists()
    assert not AuditRecord.objects.filter(action="note_incident").exists()


@pytest.mark.parametrize("role", ["viewer", ""])
def test_others_may_not_note(sign_in, role):
    letter("a")
    client = sign_in(role)
    assert client.post("/dead-letters/note/", {"fingerprint": "a", "note": "x"}).status_code == 403
    assert not Incident.objects.exists()


def test_a_form_that_is_none_changes_nothing(sign_in):
    letter("a")
    client = sign_in("support")
    for data in ({"seen": "yesterday", "fingerprint": "a", "note": "x"}, {}, {"fingerprint": "\x00", "note": "x"}):
        assert client.post("/dead-letters/note/", data, follow=True).status_code == 200
    assert not Incident.objects.exists()


@pytest.mark.parametrize("query", ["?version=x", "?version=0", "?cause=lost", "?run=1", "?" + "fingerprint=a&" * 3])
def test_a_bad_address_says_what_to_fix(viewer, query):
    letter("a")
    assert viewer.get(f"/dead-letters/{query}").status_code == 200


def test_the_page_of_one_cause_offers_that_cause_alone(sign_in):
    letter("a", "reserve")
    letter("b", "reserve")
    html = sign_in("operator").get("/dead-letters/?fingerprint=a").content.decode()
    links = [part.split('"')[0] for part in html.split('href="/bulk/preview/')[1:]]
    assert links == ["?verb=replay&amp;fingerprint=a", "?verb=discard&amp;fingerprint=a"]
    whole = sign_in("operator").get("/dead-letters/?fingerprint=a&fingerprint=b").content.decode()
    assert "Replay 2…" in whole
