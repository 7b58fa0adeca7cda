"""Artifacts over HTTP: only a run's own, only what a browser may show, whole or a range of bytes."""

from __future__ import annotations

import dataclasses
import uuid
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.template.loader import render_to_string
from django.test import Client
from django.urls import reverse

from dashboard.queries.artifacts import SHOWN, of_run
from orchestrator.engine.artifacts import ArtifactStore, artifact_store

RUN, OTHER = uuid.UUID(int=1), uuid.UUID(int=2)
pytestmark = pytest.mark.django_db


@pytest.fixture
def store(settings: Any, tmp_path: Path) -> ArtifactStore:
    settings.ORCHESTRATOR = dataclasses.replace(settings.ORCHESTRATOR, artifacts_url=str(tmp_path))
    return artifact_store()


@pytest.fixture
def viewer(client: Client) -> Client:
    user = User.objects.create_user("vi")
    user.groups.add(Group.objects.get_or_create(name="viewer")[0])
    client.force_login(user)
    return client


def body(response: Any) -> bytes:
    return b"".join(response.streaming_content) if response.streaming else response.content


def get(client: Client, path: str, run: uuid.UUID = RUN, **headers: str) -> Any:
    return client.get(f"/runs/{run}/artifacts/{path}", headers=headers)


@pytest.mark.parametrize(
    ("name", "kind", "shown"),
    [
        ("a.mp4", "video/mp4", True),
        ("a.JPG", "image/jpeg", True),
        ("a.json", "application/json", True),
        ("a.txt", "text/plain; charset=utf-8", True),
        ("a.html", "application/octet-stream", False),
        ("a.svg", "application/octet-stream", False),
        ("html", "application/octet-stream", False),
    ],
)
def test_only_what_is_safe_is_shown(store: ArtifactStore, viewer: Client, name: str, kind: str, shown: bool) -> None:
    store.bind(RUN, "a", "ü/ö").put(name, b"<script>")
    [artifact] = store.iter_run(RUN)
    response = viewer.get(reverse("run-artifact", args=[RUN, artifact.path]))
    assert response.status_code == 200 and body(response) == b"<script>"
    assert response["Content-Type"] == kind and response["X-Content-Type-Options"] == "nosniff"
    assert response["Content-Disposition"].startswith("inline" if shown else "attachment")


def test_nothing_outside_the_run_is_reached(store: ArtifactStore, viewer: Client) -> None:
    store.bind(OTHER, "a").put("x.txt", b"secret")
    store.put("uploads/u/source.mp4", b"secret")
    ref = store.put_output(RUN, "a", "", '"secret"')
    paths = [
        "a/_/x.txt",
        f"../{OTHER}/a/_/x.txt",
        f"..%2f{OTHER}/a/_/x.txt",
        "a/../../../uploads/u/source.mp4",
        "a/_",
        "a",
    ]
    paths += ["//etc/passwd", "a//x", "a/_/%00", "a/_/" + "x" * 300, "a/_/..\\x", ref.split("/", 2)[2]]
    for path in paths:
        assert get(viewer, path).status_code == 404, path
    assert body(get(viewer, "a/_/x.txt", OTHER)) == b"secret"


def test_it_needs_a_sign_in_and_a_role(store: ArtifactStore, client: Client) -> None:
    store.bind(RUN, "a").put("x.txt", b"1")
    assert get(client, "a/_/x.txt").status_code == 302
    client.force_login(User.objects.create_user("nobody"))
    assert get(client, "a/_/x.txt").status_code == 403


@pytest.mark.parametrize(
    ("header", "status", "sent"),
    [
        ("bytes=0-", 206, b"0123456789"),
        ("bytes=2-4", 206, b"234"),
        ("bytes=8-99", 206, b"89"),
        ("bytes=-3", 206, b"789"),
        ("bytes=-99", 206, b"0123456789"),
        ("bytes=10-", 416, b""),
        ("bytes=-0", 416, b""),
        ("bytes=5-2", 416, b""),
        ("bytes=-", 200, b"0123456789"),
        ("bytes=0-1,4-5", 200, b"0123456789"),
        ("lines=1-2", 200, b"0123456789"),
    ],
)
def test_a_video_can_be_asked_for_in_parts(
    store: ArtifactStore, viewer: Client, header: str, status: int, sent: bytes
) -> None:
    store.bind(RUN, "a").put("x.mp4", b"0123456789")
    response = get(viewer, "a/_/x.mp4", Range=header)
    assert (response.status_code, body(response)) == (status, sent)
    if status == 206:
        assert response["Content-Length"] == str(len(sent)) and response["Content-Range"].endswith("/10")
    if status == 416:
        assert response["Content-Range"] == "bytes */10"


def test_an_empty_file_has_no_range(store: ArtifactStore, viewer: Client) -> None:
    store.bind(RUN, "a").put("x.mp4", b"")
    assert get(viewer, "a/_/x.mp4", Range="bytes=0-").status_code == 416
    assert body(get(viewer, "a/_/x.mp4")) == b""


def test_the_component_shows_pictures_links_the_rest_and_stops(store: ArtifactStore) -> None:
    assert of_run(RUN) is None
    store.bind(RUN, "thumbnail").put("sprite.jpg", b"j")
    store.bind(RUN, "transcode", "<b>720p").put("rendition.mp4", b"v")
    html = render_to_string("components/artifacts.html", {"run": {"id": RUN}, "artifacts": of_run(RUN)})
    assert f'<img src="/runs/{RUN}/artifacts/thumbnail/_/sprite.jpg"' in html
    assert f'href="/runs/{RUN}/artifacts/transcode/' in html and "<b>" not in html and "Only the first" not in html
    for index in range(SHOWN):
        store.bind(RUN, "many", str(index)).put("x", b"")
    found = of_run(RUN)
    assert found is not None and found.more and len(found.files) + len(found.pictures) == SHOWN
