"""CSV files of runs, dead letters and the audit trail: safe in a spreadsheet, masked, bounded."""

import csv
import io

import pytest

from dashboard import export
from orchestrator.models import AuditRecord, DeadLetter
from tests.dashboard.conftest import many
from tests.harness.factory import make

BAD = [
    "=1+1",
    "+1",
    "-1",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    " =1",
    "\u00a0=1",
    "\uff1d1",
    "\uff20x",
    "=cmd|'/c calc'!A1",
]


@pytest.mark.parametrize("text", BAD)
def test_no_cell_begins_a_formula(text):
    assert export.cell(text) == f"'{text}"


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, ""), (3, 3), (-3, -3), (True, True), ("a=1", "a=1"), ({"a": 1}, '{"a": 1}'), ("n\x00l", "n\ufffdl")],
)
def test_other_cells(value, shown):
    assert export.cell(value) == shown


def rows(answer):
    assert answer.status_code == 200
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    assert answer["Content-Disposition"].startswith("attachment; filename=")
    text = b"".join(answer.streaming_content).decode()
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_runs_that_match(viewer):
    make("failed", subject='=HYPERLINK("http://x","a")', labels={"api_key": "s3cr3t", "tier": "gold"})
    make("done", subject="other")
    found = rows(viewer.get("/runs/export/?state=failed"))
    assert len(found) == 1
    assert found[0]["subject"] == '\'=HYPERLINK("http://x","a")'
    assert found[0]["where"].startswith("480p of transcode failed")
    assert found[0]["submitted"].endswith("Z")
    assert "s3cr3t" not in str(found)
    assert "gold" in found[0]["labels"]
    assert len(rows(viewer.get("/runs/export/"))) == 2


def test_a_file_is_bounded_and_read_in_parts(viewer, monkeypatch):
    many(25)
    monkeypatch.setattr(export, "MOST", 17)
    monkeypatch.setattr(export, "CHUNK", 5)
    found = rows(viewer.get("/runs/export/"))
    assert [row["subject"] for row in found] == [f"s-{n:03d}" for n in range(25, 8, -1)]


def test_dead_letters_and_audit(viewer):
    run = make("failed")
    DeadLetter.objects.update(note="=1", error={"type": "@E", "message": "password=hunter2 gone"})
    AuditRecord.objects.create(run=run, action="cancel", actor="+mara", reason="-1", after={"token": "abc", "n": 1})
    (letter,) = rows(viewer.get("/dead-letters/export/"))
    assert (letter["note"], letter["error"][:3], letter["step"]) == ("'=1", "'@E", "transcode")
    assert "hunter2" not in str(letter)
    records = rows(viewer.get("/audit/export/"))
    (mara,) = [row for row in records if row["action"] == "cancel"]
    assert (mara["actor"], mara["reason"]) == ("'+mara", "'-1")
    assert "abc" not in str(records)


@pytest.mark.parametrize("path", ["/runs/export/?state=lost", "/runs/export/?version=x", "/audit/export/?since=never"])
def test_a_filter_that_cannot_be_read_makes_no_file(viewer, path):
    answer = viewer.get(path)
    assert answer.status_code == 302
    assert "No file was made" in viewer.get(answer["Location"]).content.decode()


@pytest.mark.parametrize("path", ["/runs/export/", "/dead-letters/export/", "/audit/export/"])
def test_files_need_a_role(sign_in, client, path):
    assert sign_in("").get(path).status_code == 403
    assert client.get(path).status_code == 302
