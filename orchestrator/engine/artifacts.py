"""Artifacts: what a step makes and the next one reads, kept by key outside the broker and the database.

A key follows from run, step, shard and name alone, so that a second attempt overwrites or finds the first one's
work and the clean-up of a run is one prefix::

    runs/<run id>/<step>/<shard>/<name>          what handlers put
    runs/<run id>/.outputs/<step>/<shard>/<hash>.json   outputs over the inline limit
    uploads/<id>/<name>                          files that came in before there was a run
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

from django.conf import settings
from django.core.files import File
from django.core.files.base import ContentFile
from django.core.files.storage import Storage

from orchestrator.core.errors import Conflict, SwitchyardError
from orchestrator.engine.artifact_keys import check_name, slug, unslug
from orchestrator.engine.artifact_storage import storage_for

Data = bytes | bytearray | memoryview | str | Path | IO[Any]
OUTPUTS = ".outputs"
_SHOWN = {
    "mp4": "video/mp4",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "png": "image/png",
    "json": "application/json",
    "txt": "text/plain; charset=utf-8",
}


class ArtifactMissing(SwitchyardError):
    """An artifact that should be there is not: never put, deleted, or past its retention."""

    code = "artifact_missing"


class StorageAway(Conflict):
    """The artifact storage does not answer, or not as it should: what needs it has to wait. Nothing was changed."""

    code = "storage_unavailable"


@dataclass(frozen=True)
class Artifact:
    """One stored file of a run. ``size`` in bytes."""

    name: str
    key: str
    size: int
    step: str
    shard: str

    @property
    def path(self) -> str:
        """The key behind ``runs/<run id>/``, for links."""
        return self.key.split("/", 2)[2]

    @property
    def media_type(self) -> str:
        """By the name's ending: one of those a browser may show, else ``application/octet-stream``."""
        return media_type(self.name)


def media_type(name: str) -> str:
    """What a browser may be told of a file with this name. HTML, SVG and the rest are bytes to download."""
    return _SHOWN.get(name.rsplit(".", 1)[-1].lower() if "." in name else "", "application/octet-stream")


class ArtifactStore:
    """All artifacts of all runs. Handlers get a :class:`StepArtifacts` from :meth:`bind`."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def bind(self, run_id: uuid.UUID | str, step: str, shard: str = "") -> StepArtifacts:
        """The artifacts as one step or shard of a run sees them."""
        return StepArtifacts(self, str(run_id), step, shard)

    def put(self, key: str, data: Data) -> str:
        """Stores ``data`` under ``key`` as one act, over what was there."""
        if isinstance(data, Path):
            with data.open("rb") as source:
                return self.storage.save(key, File(source, name=key))
        if isinstance(data, str):
            data = data.encode()
        if isinstance(data, (bytes, bytearray, memoryview)):
            return self.storage.save(key, ContentFile(bytes(data), name=key))
        if not isinstance(data, File) and isinstance(data.read(0), str):
            return self.storage.save(key, ContentFile(data.read().encode(), name=key))
        return self.storage.save(key, data if isinstance(data, File) else File(data, name=key))

    def open_key(self, key: str) -> File[Any]:
        """A readable binary file.

        Raises:
            ArtifactMissing: if nothing is stored under ``key``.
        """
        try:
            if not self.storage.exists(key):
                raise FileNotFoundError(key)
            return self.storage.open(key, "rb")
        except FileNotFoundError:
            raise ArtifactMissing(
                f"the artifact {key} is not there: it was never stored, was deleted, or its retention has passed"
            ) from None

    def exists_key(self, key: str) -> bool:
        """Whether something is stored under ``key``."""
        return self.storage.exists(key)

    def delete_key(self, key: str) -> None:
        """Deletes it; a key that is not there is fine, so that a repeated clean-up is too."""
        if self.storage.exists(key):
            self.storage.delete(key)

    def iter_run(
        self, run_id: uuid.UUID | str, step: str | None = None, shard: str | None = None
    ) -> Iterator[Artifact]:
        """What handlers of a run have stored, by step, shard and name; without outputs over the inline limit.

        Looks only as far as it is read, so a page may take the first few of many thousands.
        """
        root = f"runs/{run_id}"
        for step_slug in [slug(step)] if step is not None else self._listdir(root)[0]:
            if step_slug == OUTPUTS:
                continue
            folder = f"{root}/{step_slug}"
            for shard_slug in [slug(shard)] if shard is not None else self._listdir(folder)[0]:
                base = f"{folder}/{shard_slug}"
                names = sorted(self._walk(base))
                texts = (self._text(root, step_slug), self._text(folder, shard_slug)) if names else ("", "")
                for name in names:
                    with suppress(FileNotFoundError):  # deleted meanwhile
                        yield Artifact(name, f"{base}/{name}", self.storage.size(f"{base}/{name}"), *texts)

    def delete_prefix(self, run_id: uuid.UUID | str) -> int:
        """Deletes everything of a run and says how many files that were."""
        return self._delete_tree(f"runs/{uuid.UUID(str(run_id))}")

    def put_output(self, run_id: uuid.UUID | str, step: str, shard: str, json_text: str) -> str:
        """Stores an output over the inline limit; the answer is what ``output_ref`` holds.

        The key holds the hash of the content: every attempt with this output shares it, and a worker that lost its
        claim cannot overwrite the output of its successor.
        """
        raw = json_text.encode()
        name = hashlib.sha256(raw).hexdigest()[:32]
        key = f"runs/{run_id}/{OUTPUTS}/{slug(step)}/{slug(shard)}/{name}.json"
        return self.put(key, raw)

    def load_output(self, ref: str) -> Any:
        """The output behind an ``output_ref``.

        Raises:
            ArtifactMissing: if it is not there, or no longer whole.
        """
        with self.open_key(ref) as file:
            raw = file.read()
        if hashlib.sha256(raw).hexdigest()[:32] != ref.rsplit("/", 1)[-1].removesuffix(".json"):
            raise ArtifactMissing(f"the output {ref} is damaged: its content no longer fits its key; retry the step")
        return json.loads(raw)

    def store_upload(self, data: Data, filename: str) -> str:
        """Stores a file that comes from outside and answers its key, for a run's input.

        ``filename`` may be anything; it only lends the key its ending.
        """
        suffix = re.sub(r"[^a-z0-9.]", "", Path(filename.replace("\\", "/")).suffix.lower())[:10]
        return self.put(f"uploads/{uuid.uuid4().hex}/source{suffix if len(suffix) > 1 else ''}", data)

    def _listdir(self, path: str) -> tuple[list[str], list[str]]:
        try:
            folders, files = self.storage.listdir(path)
        except (FileNotFoundError, NotADirectoryError):
            return [], []
        return sorted(folders), sorted(f for f in files if f)

    def _walk(self, base: str) -> Iterator[str]:
        folders, files = self._listdir(base)
        yield from files
        for folder in folders:
            yield from (f"{folder}/{name}" for name in self._walk(f"{base}/{folder}"))

    def _text(self, parent: str, segment: str) -> str:
        text = unslug(segment)
        if text is not None:
            return text
        with self.open_key(f"{parent}/{segment}.text") as file:
            return str(file.read().decode("utf-8", "surrogatepass"))

    def _delete_tree(self, path: str) -> int:
        folders, files = self._listdir(path)
        for name in files:
            self.storage.delete(f"{path}/{name}")
        return len(files) + sum(self._delete_tree(f"{path}/{folder}") for folder in folders)


class StepArtifacts:
    """``ctx.artifacts``: what one step or shard stores, and how it reads what others of its run stored.

    Without ``step`` a name is this step's and shard's own; with it the shard is ``""`` unless given.
    """

    def __init__(self, store: ArtifactStore, run_id: str, step: str, shard: str) -> None:
        self._store, self._run_id, self._step, self._shard = store, run_id, step, shard

    def key(self, name: str, step: str | None = None, shard: str | None = None) -> str:
        """The key of a name, whether or not anything is stored there."""
        if step is None:
            step, shard = self._step, self._shard if shard is None else shard
        return f"runs/{self._run_id}/{slug(step)}/{slug(shard or '')}/{check_name(name)}"

    def put(self, name: str, data: Data) -> str:
        """Stores bytes, text (as UTF-8), an open file or the file at a ``Path``; answers the key.

        A second put of a name replaces the first as one act: a reader sees one or the other.
        """
        key = self.key(name)
        root, folder = f"runs/{self._run_id}", f"runs/{self._run_id}/{slug(self._step)}"
        for parent, text in ((root, self._step), (folder, self._shard)):
            if unslug(slug(text)) is None:
                self._store.put(f"{parent}/{slug(text)}.text", text.encode("utf-8", "surrogatepass"))
        return self._store.put(key, data)

    def exists(self, name: str, step: str | None = None, shard: str | None = None) -> bool:
        """Whether it is there."""
        return self._store.exists_key(self.key(name, step, shard))

    def open(self, name: str, step: str | None = None, shard: str | None = None) -> File[Any]:
        """A readable binary file.

        Raises:
            ArtifactMissing: if it is not there.
        """
        return self._store.open_key(self.key(name, step, shard))

    def delete(self, name: str, step: str | None = None, shard: str | None = None) -> None:
        """Deletes it, also another step's (a compensation does that); fine if it is not there."""
        self._store.delete_key(self.key(name, step, shard))

    def list(self, step: str | None = None, shard: str | None = None) -> list[Artifact]:
        """Artifacts of this run, of all steps and shards unless one is named."""
        return list(self._store.iter_run(self._run_id, step, shard))


@lru_cache(maxsize=4)
def _store(url: str, default: Path) -> ArtifactStore:
    return ArtifactStore(storage_for(url, default))


def artifact_store() -> ArtifactStore:
    """The store that the settings name."""
    return _store(settings.ORCHESTRATOR.artifacts_url, settings.LOCAL_DIR / "artifacts")


def put_output(run_id: uuid.UUID | str, step: str, shard: str, json_text: str) -> str:
    """:meth:`ArtifactStore.put_output` of the store that the settings name."""
    return artifact_store().put_output(run_id, step, shard, json_text)


def load_output(ref: str) -> Any:
    """:meth:`ArtifactStore.load_output` of the store that the settings name."""
    return artifact_store().load_output(ref)


def delete_prefix(run_id: uuid.UUID | str) -> int:
    """:meth:`ArtifactStore.delete_prefix` of the store that the settings name."""
    return artifact_store().delete_prefix(run_id)
