"""The upload page: a video becomes a run, anything else a sentence that says what to do."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from dashboard.views import upload
from orchestrator.definitions.publish import publish
from orchestrator.engine.artifacts import artifact_store
from orchestrator.models import Definition, Run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("run")]


@pytest.fixture
def operator(client: Client) -> Client:
    publish(["examples.video_upload"])
    client.force_login(sign_in("operator"))
    return client


def sign_in(role: str) -> User:
    user = User.objects.create_user(role, "op@example.com")
    user.groups.add(Group.objects.get_or_create(name=role)[0])
    return user


def send(client: Client, name: str = "My Film.mp4", data: bytes = b"video", **fields: Any) -> Any:
    return client.post("/upload/", {"video": SimpleUploadedFile(name, data), **fields})


def test_a_video_becomes_a_run(operator: Client) -> None:
    page = operator.get("/upload/")
    assert (
        page.status_code == 200 and 'type="file"' in page.content.decode() and "op@example.com" in page.content.decode()
    )
    assert 'href="/upload/"' in operator.get("/workflows/video-upload/").content.decode()
    response = send(operator, email="ann@example.com")
    run = Run.objects.get()
    assert response.status_code == 302 and response["Location"] == f"/runs/{run.id}/"
    assert run.workflow == "video-upload" and run.subject_id.startswith("my-film-") and run.submitted_by == "operator"
    assert run.labels["uploader"] == "ann@example.com", "by which support finds it"
    assert run.input["email"] == "ann@example.com" and run.input["source"].endswith("/source.mp4")
    assert artifact_store().open_key(run.input["source"]).read() == b"video"


@pytest.mark.parametrize("name", ["../../x.mp4", "日本語.mp4", ".mp4", "a" * 200 + ".mp4", "<b>.mp4"])
def test_any_file_name_will_do(operator: Client, name: str) -> None:
    assert send(operator, name).status_code == 302
    run = Run.objects.get()
    assert run.input["source"].startswith("uploads/") and 0 < len(run.subject_id) < 80 and "email" not in run.input


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "Choose a video file first."),
        ({"video": SimpleUploadedFile("x.mp4", b"")}, "That file is empty"),
        ({"video": SimpleUploadedFile("x.mp4", b"v"), "email": "nobody"}, "That is not an address"),
    ],
)
def test_a_mistake_is_explained_and_starts_nothing(operator: Client, fields: dict[str, Any], said: str) -> None:
    response = operator.post("/upload/", fields)
    assert response.status_code == 422 and said in response.content.decode()
    assert not Run.objects.exists() and artifact_store().storage.listdir("uploads")[0] == ["test"]


def test_a_file_over_the_limit_is_refused_before_and_after_it_is_read(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload, "MAX_BYTES", 1024)
    response = send(operator, data=b"v" * 1025)
    assert response.status_code == 422 and "up to 1\xa0KB can be uploaded" in response.content.decode()
    response = send(operator, data=b"v" * (1025 + upload.FORM_BYTES))
    assert response.status_code == 413 and "Nothing was kept" in response.content.decode()
    assert not Run.objects.exists()


def test_it_needs_csrf_and_the_role(operator: Client) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(User.objects.get(username="operator"))
    assert send(strict).status_code == 403
    operator.force_login(sign_in("support"))
    assert send(operator).status_code == 403
    operator.logout()
    assert send(operator).status_code == 302 and not Run.objects.exists()


def test_without_the_workflow_it_says_so_and_keeps_nothing(operator: Client, settings: Any) -> None:
    Definition.objects.all().delete()
    response = send(operator)
    assert response.status_code == 422 and "video-upload" in response.content.decode()
    assert artifact_store().storage.listdir("uploads")[0] == ["test"]
    settings.ORCHESTRATOR = dataclasses.replace(settings.ORCHESTRATOR, workflows=["shop.workflows"])
    assert operator.get("/upload/").status_code == 404
