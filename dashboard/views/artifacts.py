"""Files that a run has stored: a video plays and seeks, a picture shows, anything else downloads."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from typing import IO, Any

from django.http import FileResponse, Http404, HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.views.decorators.http import require_safe

from dashboard.access import require_role
from orchestrator.engine.artifacts import ArtifactMissing, artifact_store, media_type

CHUNK = 256 * 1024
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


@require_safe
@require_role("viewer")
def artifact(request: HttpRequest, run_id: uuid.UUID, path: str) -> HttpResponseBase:
    """One artifact of a run. ``path`` is ``Artifact.path``: step, shard and name."""
    parts = path.split("/")
    # A leading dot is the engine's own (outputs over the inline limit, which pages mask); the rest cannot be a key.
    if not 3 <= len(parts) <= 60 or any(_impossible(part) for part in parts):
        raise Http404("no artifact has such a path")
    try:
        file = artifact_store().open_key(f"runs/{run_id}/{path}")
    except ArtifactMissing as error:
        raise Http404(error.message) from None
    kind = media_type(path)
    response = _ranged(request.headers.get("Range", ""), file, kind) or FileResponse(
        file, content_type=kind, as_attachment=kind == "application/octet-stream", filename=parts[-1]
    )
    response["Accept-Ranges"] = "bytes"
    response["X-Content-Type-Options"] = "nosniff"
    response["Cache-Control"] = "private, no-cache"  # a retry may replace it under the same address
    return response


def _impossible(part: str) -> bool:
    return not part or part.startswith(".") or "\\" in part or not part.isprintable() or len(part.encode()) > 200


def _ranged(header: str, file: Any, kind: str) -> HttpResponseBase | None:
    """The answer to a request for one range of bytes; ``None`` where the whole file is the right answer."""
    match = _RANGE.fullmatch(header.strip())
    if match is None or match.groups() == ("", ""):
        return None
    size: int = file.size
    if match[1]:
        first, last = int(match[1]), min(int(match[2] or size - 1), size - 1)
    else:
        first, last = max(0, size - int(match[2])), size - 1
    if first > last:
        file.close()
        return HttpResponse(status=416, headers={"Content-Range": f"bytes */{size}"})
    headers = {"Content-Range": f"bytes {first}-{last}/{size}", "Content-Length": str(last - first + 1)}
    if kind == "application/octet-stream":
        headers["Content-Disposition"] = "attachment"
    return StreamingHttpResponse(_slice(file, first, last), status=206, content_type=kind, headers=headers)


def _slice(file: IO[bytes], first: int, last: int) -> Iterator[bytes]:
    with file:
        file.seek(first)
        left = last - first + 1
        while left > 0 and (chunk := file.read(min(CHUNK, left))):
            left -= len(chunk)
            yield chunk
