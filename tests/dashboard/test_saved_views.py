"""Views of the runs page that the team keeps."""

import pytest

from dashboard.models import SavedView
from orchestrator.models import AuditRecord

SAVE = "/runs/views/save/"


def said(client):
    return client.get("/runs/").content.decode()


def test_support_saves_filters_for_everybody_and_deletes_them(sign_in):
    sam = sign_in("support")
    page = sam.get("/runs/?state=failed&since=24h&cursor=").content.decode()
    assert 'name="query" value="state=failed&amp;since=24h"' in page
    answer = sam.post(SAVE, {"name": "  Failed   today ", "query": "since=24h&state=failed&cursor=a.x&limit=7"})
    assert (answer.status_code, answer["Location"]) == (302, "/runs/?state=failed&since=24h")
    view = SavedView.objects.get()
    assert (view.name, view.query, view.owner) == ("Failed today", "state=failed&since=24h", "support")
    html = sign_in("viewer").get("/runs/?state=failed&since=24h").content.decode()
    assert 'href="/runs/?state=failed&amp;since=24h" title="Saved by support" aria-current="true">Failed today' in html
    assert "Delete this view" not in html
    assert sam.post(f"/runs/views/{view.pk}/delete/").status_code == 302
    assert not SavedView.objects.exists()
    trail = [(record.action, record.subject, record.actor) for record in AuditRecord.objects.order_by("id")]
    assert trail == [("save_view", "view Failed today", "support"), ("delete_view", "view Failed today", "support")]
    assert "has been deleted already" in sam.post(f"/runs/views/{view.pk}/delete/", follow=True).content.decode()


@pytest.mark.parametrize(
    ("name", "query", "told"),
    [
        ("", "state=failed", "give the view a name"),
        ("x" * 61, "state=failed", "give the view a name"),
        ("all", "", "set a filter first"),
        ("all", "cursor=a.b&limit=5", "set a filter first"),
        ("odd", "state=lost", "is unknown"),
        ("odd", "version=" + "9" * 300, "is not a whole number"),
        ("odd", "q=" + "x" * 5000, "too long"),
        ("n\x00l", "subject_id=a%00b", "NUL"),
    ],
)
def test_what_cannot_be_kept_is_told(sign_in, name, query, told):
    client = sign_in("support")
    client.post(SAVE, {"name": name, "query": query})
    assert told.lower() in said(client).lower()
    assert not SavedView.objects.exists()


def test_a_name_is_taken_once(sign_in):
    client = sign_in("operator")
    for query in ("state=failed", "state=done"):
        client.post(SAVE, {"name": "mine", "query": query})
    assert "There is a view called mine" in said(client)
    assert SavedView.objects.get().query == "state=failed"
    assert AuditRecord.objects.filter(action="save_view").count() == 1


@pytest.mark.parametrize("role", ["viewer", ""])
def test_others_neither_see_the_form_nor_get_through(sign_in, role):
    view = SavedView.objects.create(name="n", query="state=done", owner="sam")
    client = sign_in(role)
    assert "Save this view" not in client.get("/runs/?state=failed").content.decode()
    assert client.post(SAVE, {"name": "x", "query": "state=failed"}).status_code == 403
    assert client.post(f"/runs/views/{view.pk}/delete/").status_code == 403
    assert SavedView.objects.count() == 1


def test_they_take_a_token_and_a_post(sign_in):
    client = sign_in("support", enforce_csrf_checks=True)
    assert client.post(SAVE, {"name": "x", "query": "state=failed"}).status_code == 403
    assert client.get(SAVE).status_code == 405
