"""Artifacts: keys that cannot collide or escape, writes that are whole or not there, clean-up by prefix."""

from __future__ import annotations

import io
import uuid
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.errors import Invalid, SwitchyardError
from orchestrator.engine.artifact_keys import slug, unslug
from orchestrator.engine.artifact_storage import FolderStorage, MemoryStorage, storage_for
from orchestrator.engine.artifacts import ArtifactMissing, ArtifactStore

RUN = uuid.UUID("01890000-0000-7000-8000-000000000001")
HOSTILE = ["../../etc", "/abs", "a/b", "a\\b", ".", "..", "", "_", "A", "a", "é", "e\u0301", "\x00", "\ud800", "=41"]
HOSTILE += [".outputs", "x" * 151, "x" * 152, "1080p", "con.text", "%2e%2e", " ", "\n", "ü" * 200]


@pytest.fixture(params=["folder", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(FolderStorage(location=str(tmp_path)) if request.param == "folder" else MemoryStorage())


def test_a_key_follows_from_run_step_shard_and_name(store: ArtifactStore) -> None:
    artifacts = store.bind(RUN, "transcode", "720p")
    assert artifacts.put("out.mp4", b"one") == f"runs/{RUN}/transcode/720p/out.mp4"
    assert artifacts.put("out.mp4", b"2") == f"runs/{RUN}/transcode/720p/out.mp4"
    assert artifacts.open("out.mp4").read() == b"2"
    assert [a.size for a in artifacts.list()] == [1]


@pytest.mark.parametrize("shape", ["bytes", "str", "path", "binary file", "text file", "empty"])
def test_every_shape_of_data_is_stored(store: ArtifactStore, tmp_path: Path, shape: str) -> None:
    (tmp_path / "in.bin").write_bytes("naïve".encode())
    data = {
        "bytes": "naïve".encode(),
        "str": "naïve",
        "path": tmp_path / "in.bin",
        "binary file": io.BytesIO("naïve".encode()),
        "text file": io.StringIO("naïve"),
        "empty": b"",
    }[shape]
    artifacts = store.bind(RUN, "a")
    artifacts.put("x", b"something longer that was there before")
    artifacts.put("x", data)
    assert artifacts.open("x").read().decode() == ("" if shape == "empty" else "naïve")


def test_hostile_shards_stay_apart_and_come_back(store: ArtifactStore) -> None:
    for shard in HOSTILE:
        store.bind(RUN, "step", shard).put("f", shard.encode("utf-8", "surrogatepass"))
    found = list(store.iter_run(RUN))
    assert sorted(a.shard for a in found) == sorted(HOSTILE)
    for artifact in found:
        assert artifact.key.startswith(f"runs/{RUN}/step/") and ".." not in artifact.key.split("/")
        assert store.open_key(artifact.key).read().decode("utf-8", "surrogatepass") == artifact.shard


@given(st.text(), st.text())
def test_slugs_are_one_to_one_whatever_the_case(one: str, other: str) -> None:
    assert (slug(one).lower() == slug(other).lower()) == (one == other)
    assert unslug(slug(one)) in (one, None) and 0 < len(slug(one)) <= 150


BAD = ["", ".", "..", "../x", "a/../b", "/etc/passwd", "a//b", "a/", "a\\b", "a\x00b", "a\n", ".hid", "\ud800"]


@pytest.mark.parametrize("name", [*BAD, "x" * 501, "ü" * 101])
def test_bad_names_are_refused_with_advice(store: ArtifactStore, name: str) -> None:
    artifacts = store.bind(RUN, "a")
    for act in (artifacts.exists, artifacts.open, artifacts.delete, lambda n: artifacts.put(n, b"")):
        with pytest.raises(Invalid, match="write a relative name"):
            act(name)


def test_another_steps_artifact_is_read_and_deleted_by_naming_it(store: ArtifactStore) -> None:
    store.bind(RUN, "transcode", "720p").put("out.mp4", b"v")
    store.bind(RUN, "probe").put("facts/size.json", b"{}")
    undo = store.bind(RUN, "delete_renditions")
    assert not undo.exists("out.mp4") and not undo.exists("out.mp4", step="transcode")
    assert undo.exists("out.mp4", step="transcode", shard="720p") and undo.exists("facts/size.json", step="probe")
    assert [(a.step, a.shard, a.name, a.path) for a in undo.list()] == [
        ("probe", "", "facts/size.json", "probe/_/facts/size.json"),
        ("transcode", "720p", "out.mp4", "transcode/720p/out.mp4"),
    ]
    assert [a.name for a in undo.list(step="transcode", shard="720p")] == ["out.mp4"] and undo.list(step="x") == []
    undo.delete("out.mp4", step="transcode", shard="720p")
    undo.delete("out.mp4", step="transcode", shard="720p")
    assert [a.step for a in undo.list()] == ["probe"]


def test_a_missing_artifact_says_which(store: ArtifactStore) -> None:
    with pytest.raises(ArtifactMissing, match=f"runs/{RUN}/a/_/gone.bin") as caught:
        store.bind(RUN, "a").open("gone.bin")
    assert isinstance(caught.value, SwitchyardError) and caught.value.code == "artifact_missing"


def test_a_folder_is_not_an_artifact(store: ArtifactStore) -> None:
    artifacts = store.bind(RUN, "a")
    artifacts.put("d/x", b"1")
    with pytest.raises((ArtifactMissing, OSError)):
        artifacts.open("d")


def test_outputs_by_reference_are_kept_apart_from_artifacts(store: ArtifactStore) -> None:
    ref = store.put_output(RUN, "a", "../s", '{"big": [1, "é"]}')
    assert ref == store.put_output(RUN, "a", "../s", '{"big": [1, "é"]}')
    assert ref != store.put_output(RUN, "a", "../s", '{"big": []}'), "a late worker must not replace it"
    assert store.load_output(ref) == {"big": [1, "é"]}
    assert list(store.iter_run(RUN)) == []
    store.put(ref, b"[]")
    with pytest.raises(ArtifactMissing, match="damaged"):
        store.load_output(ref)


def test_clean_up_takes_one_run_and_can_be_repeated(store: ArtifactStore) -> None:
    other = uuid.uuid4()
    store.bind(RUN, "a").put("x/y/z", b"1")
    store.put_output(RUN, "a", "", "[]")
    store.bind(other, "a").put("x", b"1")
    assert store.delete_prefix(RUN) == 2 and store.delete_prefix(RUN) == 0
    assert list(store.iter_run(RUN)) == [] and [a.name for a in list(store.iter_run(other))] == ["x"]
    with pytest.raises(ValueError):
        store.delete_prefix("")


def test_deleting_the_last_file_takes_its_empty_folders_but_not_the_root(tmp_path: Path) -> None:
    store = ArtifactStore(FolderStorage(location=str(tmp_path / "root")))
    store.put("uploads/a/x", b"1")
    store.put("uploads/b/x", b"1")
    store.delete_key("uploads/a/x")
    assert [p.name for p in (tmp_path / "root/uploads").iterdir()] == ["b"]
    store.delete_key("uploads/b/x")
    assert [p.name for p in (tmp_path / "root").iterdir()] == [".partial"]


def test_a_write_that_dies_leaves_the_old_file_and_no_rest(tmp_path: Path) -> None:
    class Dying(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise OSError("disk full")

    artifacts = ArtifactStore(FolderStorage(location=str(tmp_path))).bind(RUN, "a")
    artifacts.put("x", b"old")
    with pytest.raises(OSError):
        artifacts.put("x", Dying(b"new"))
    assert artifacts.open("x").read() == b"old"
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [tmp_path / f"runs/{RUN}/a/_/x"]


def test_uploads_get_a_key_of_their_own_whatever_they_are_called(store: ArtifactStore) -> None:
    first, second = (store.store_upload(b"v", "../../My Film.MP4") for _ in range(2))
    assert first != second and first.startswith("uploads/") and first.endswith("/source.mp4")
    assert store.open_key(store.store_upload(b"v", "..")).read() == b"v"


def test_the_url_chooses_the_storage(tmp_path: Path) -> None:
    for url, folder in (("", tmp_path), (f"{tmp_path}/x", tmp_path / "x"), (f"file://{tmp_path}/y", tmp_path / "y")):
        storage = storage_for(url, tmp_path)
        assert isinstance(storage, FolderStorage) and storage.location == str(folder)
    for url in ("ftp://host/x", "s3:///prefix"):
        with pytest.raises(ImproperlyConfigured, match="ARTIFACTS_URL"):
            storage_for(url, tmp_path)
