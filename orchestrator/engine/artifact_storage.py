"""Where artifacts lie: a folder or an S3 bucket, through Django's storage API, always overwriting as one act."""

from __future__ import annotations

import contextlib
import os
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured
from django.core.files.base import ContentFile, File
from django.core.files.storage import FileSystemStorage, Storage

#: Half-written files wait here, on the same file system, until one rename puts them in place.
PARTIAL = ".partial"


class FolderStorage(FileSystemStorage):
    """A folder. A reader sees the old file or the new one, never half of either, whenever the writer dies."""

    def get_available_name(self, name: str, max_length: int | None = None) -> str:
        """The name itself: a second write overwrites."""
        return name

    def exists(self, name: str) -> bool:
        """Whether a file, not a folder, is there."""
        return Path(self.path(name)).is_file()

    def delete(self, name: str) -> None:
        """Removes the file, and the folders that this leaves empty."""
        path = Path(self.path(name))
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # the first folder that is not empty ends it
            for folder in path.parents:
                if folder == Path(self.location):
                    break
                folder.rmdir()

    def _save(self, name: str, content: File[Any]) -> str:
        target = Path(self.path(name))
        partial = Path(self.path(f"{PARTIAL}/{uuid.uuid4().hex}"))
        partial.parent.mkdir(parents=True, exist_ok=True)
        try:
            with partial.open("wb") as out:
                out.writelines(content.chunks())
                out.flush()
                os.fsync(out.fileno())
            if self.file_permissions_mode is not None:
                partial.chmod(self.file_permissions_mode)
            _move(partial, target)
        finally:
            partial.unlink(missing_ok=True)
        return name


def _move(partial: Path, target: Path) -> None:
    """One rename, made to last; once more if a concurrent clean-up took the folder away between the two calls."""
    for last in (False, True):
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            partial.replace(target)
            break
        except FileNotFoundError:
            if last:
                raise
    with contextlib.suppress(OSError):  # not every file system lets a folder be flushed
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


class MemoryStorage(Storage):
    """Files in this process only, for tests."""

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}

    def get_available_name(self, name: str, max_length: int | None = None) -> str:
        """The name itself: a second write overwrites."""
        return name

    def exists(self, name: str) -> bool:
        """Whether a file, not a folder, is there."""
        return name in self._files

    def delete(self, name: str) -> None:
        """Forgets the file."""
        self._files.pop(name, None)

    def size(self, name: str) -> int:
        """Bytes."""
        if name not in self._files:
            raise FileNotFoundError(name)
        return len(self._files[name])

    def listdir(self, path: str) -> tuple[list[str], list[str]]:
        """Names of the folders and of the files directly below ``path``."""
        below = [key[len(path) + 1 :].split("/") for key in self._files if key.startswith(f"{path}/")]
        return sorted({parts[0] for parts in below if len(parts) > 1}), [p[0] for p in below if len(p) == 1]

    def _open(self, name: str, mode: str = "rb") -> File[Any]:
        if name not in self._files:
            raise FileNotFoundError(name)
        return ContentFile(self._files[name], name=name)

    def _save(self, name: str, content: File[Any]) -> str:
        self._files[name] = b"".join(content.chunks())
        return name


def storage_for(url: str, default: Path) -> Storage:
    """The storage that ``ARTIFACTS_URL`` names.

    Args:
        url: empty (the default folder), a folder, ``file:///folder``, or ``s3://bucket/prefix``.
        default: the folder used when ``url`` is empty.

    Raises:
        ImproperlyConfigured: for another scheme, a missing bucket, or S3 without its client library.
    """
    parts = urlsplit(url)
    if parts.scheme == "s3":
        return _s3(parts.netloc, parts.path.strip("/"))
    if parts.scheme not in ("", "file"):
        raise ImproperlyConfigured(
            f"environment variable ARTIFACTS_URL: {parts.scheme}:// is not known; write a folder or s3://bucket/prefix"
        )
    return FolderStorage(location=str(Path(parts.path if parts.scheme else url) if url else default))


def _s3(bucket: str, prefix: str) -> Storage:
    if not bucket:
        raise ImproperlyConfigured("environment variable ARTIFACTS_URL: no bucket in it; write s3://bucket/prefix")
    try:
        from storages.backends.s3 import S3Storage  # optional: its import needs boto3
    except ImportError as error:
        raise ImproperlyConfigured(
            "environment variable ARTIFACTS_URL names S3, whose client library is not installed; "
            'run: pip install "django-storages[s3]"'
        ) from error
    storage: Storage = S3Storage(
        bucket_name=bucket, location=prefix, file_overwrite=True, default_acl=None, querystring_auth=True
    )
    return storage
