"""Handlers of ``video-upload``. Each may be killed and run again at any line: work is found by its key, not redone.

The run's input is ``{"source": key of an uploaded file, "email": address or absent}``.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from pathlib import Path
from typing import Any

from django.core.exceptions import ValidationError
from django.core.mail import EmailMessage
from django.core.validators import validate_email

from examples.video_upload import media
from orchestrator.engine.artifacts import artifact_store
from orchestrator.sdk import Fail, compensation, step

RENDITION, SPRITE, READY, SENT, QUOTA = "rendition.mp4", "sprite.jpg", "ready.json", "mail-sent.json", "quota.json"
FRAMES_BETWEEN_REPORTS = 25


@step("video-upload.probe")
def probe(ctx: Any) -> dict[str, Any]:
    """Checks the file from start to end and reserves room for what it will become."""
    source, email = ctx.input.get("source"), ctx.input.get("email")
    if not isinstance(source, str) or not source.startswith("uploads/") or ".." in source:
        raise Fail(f"the input's source is {source!r:.80}; it must be the key of an uploaded file, uploads/…")
    if email is not None:
        try:
            validate_email(email)
        except ValidationError:
            raise Fail(f"the input's email {email!r:.80} is not an address") from None
    with artifact_store().open_key(source) as file:
        size = file.size
        facts = _permanent(media.inspect, file)
    ctx.check_cancelled()
    ctx.external("reserve quota")
    ctx.artifacts.put(QUOTA, json.dumps({"subject": ctx.subject_id, "bytes": 3 * size}))
    ctx.log(f"{facts.width} × {facts.height} {facts.video_codec}, {facts.seconds:.1f} s, {size} bytes")
    return {**vars(facts), "bytes": size}


@step("video-upload.transcode")
def transcode(ctx: Any) -> dict[str, Any]:
    """Makes the rendition named by the shard, or finds the one that an earlier attempt has finished."""
    match = re.fullmatch(r"([1-9]\d{2,3})p", ctx.shard)
    if match is None or int(match[1]) % 2:
        raise Fail(f"{ctx.shard!r:.40} is not a rendition; write an even height and p, such as 720p")
    height, seconds = int(match[1]), float(ctx.output("probe")["seconds"])
    found = _finished(ctx, height, seconds)
    if found is None:
        with tempfile.TemporaryDirectory(prefix="transcode-") as folder:
            target = Path(folder) / RENDITION
            with artifact_store().open_key(ctx.input["source"]) as file:
                _permanent(media.transcode, file, target, height, _Reports(ctx, seconds))
            ctx.external("store rendition")
            ctx.artifacts.put(RENDITION, target)
        found = _finished(ctx, height, seconds)
    if found is None:
        raise RuntimeError("the rendition that was just made does not play to its end")
    ctx.progress(1.0, "stored")
    with ctx.artifacts.open(RENDITION) as file:
        return {"key": ctx.artifacts.key(RENDITION), "width": found.width, "height": height, "bytes": file.size}


@step("video-upload.thumbnail")
def thumbnail(ctx: Any) -> dict[str, Any]:
    """One picture of twelve frames of the best rendition, for scrubbing through the video."""
    renditions = ctx.output("transcode")
    best = max(renditions, key=lambda shard: int(renditions[shard]["height"]))
    columns, rows = 4, 3
    with ctx.artifacts.open(RENDITION, step="transcode", shard=best) as file:
        picture, width, height = _permanent(media.sprite, file, columns, rows)
    ctx.check_cancelled()
    ctx.external("store sprite")
    key = ctx.artifacts.put(SPRITE, picture)
    return {"key": key, "of": best, "columns": columns, "rows": rows, "frame": {"width": width, "height": height}}


@step("video-upload.notify")
def notify(ctx: Any) -> dict[str, Any]:
    """Marks the video ready, then mails the uploader: one mail however often this runs."""
    renditions = {shard: made["key"] for shard, made in ctx.output("transcode").items()}
    ready = {"subject": ctx.subject_id, "renditions": renditions, "sprite": ctx.output("thumbnail")["key"]}
    key = ctx.artifacts.put(READY, json.dumps(ready))
    email = ctx.input.get("email")
    if email and not ctx.artifacts.exists(SENT):
        # Killed between these lines, a second mail goes out. It carries the same Message-ID, by which mail servers
        # and readers know it for the first one: without a transaction over both there is no more to be had.
        message_id = f"<{hashlib.sha256(ctx.idempotency_key.encode()).hexdigest()[:32]}@video-upload.switchyard>"
        ctx.external("send mail")
        _mail(ctx, email, message_id).send()
        ctx.artifacts.put(SENT, json.dumps({"to": email, "message_id": message_id}))
    return {"key": key, "mailed": bool(email)}


def _mail(ctx: Any, email: str, message_id: str) -> EmailMessage:
    seconds = ctx.output("probe")["seconds"]
    name = " ".join(str(ctx.subject_id).split())  # a line break would be a second header
    body = f"Your video {name} ({seconds:.0f} s) is ready in {', '.join(ctx.output('transcode'))}.\n"
    return EmailMessage(f"Your video {name} is ready", body, to=[email], headers={"Message-ID": message_id})


@compensation("video-upload.unmark_ready")
def unmark_ready(ctx: Any) -> None:
    """The run did not end well: the video is not ready after all. A mail that went out stays recorded as sent."""
    ctx.artifacts.delete(READY, step="notify")


@compensation("video-upload.delete_renditions")
def delete_renditions(ctx: Any) -> dict[str, int]:
    """Deletes renditions and sprite, whole or not, whatever attempt made them."""
    made = [*ctx.artifacts.list(step="transcode"), *ctx.artifacts.list(step="thumbnail")]
    ctx.external("delete renditions")
    for artifact in made:
        ctx.artifacts.delete(artifact.name, step=artifact.step, shard=artifact.shard)
    return {"deleted": len(made)}


@compensation("video-upload.release_storage_quota")
def release_storage_quota(ctx: Any) -> dict[str, int]:
    """Gives back what probe reserved; the second time there is nothing left to give back."""
    if not ctx.artifacts.exists(QUOTA, step="probe"):
        return {"released": 0}
    with ctx.artifacts.open(QUOTA, step="probe") as file:
        reserved = int(json.load(file)["bytes"])
    ctx.external("release quota")
    ctx.artifacts.delete(QUOTA, step="probe")
    return {"released": reserved}


class _Reports:
    """Called after each frame: stops a cancelled run, and once a second of video says how far it is."""

    def __init__(self, ctx: Any, seconds: float) -> None:
        self.ctx, self.seconds, self.frames = ctx, seconds, 0

    def __call__(self, done: float) -> None:
        self.ctx.check_cancelled()
        self.frames += 1
        if self.frames % FRAMES_BETWEEN_REPORTS == 0:
            share = min(0.99, done / self.seconds) if self.seconds else 0.0
            self.ctx.progress(share, f"second {done:.0f} of {self.seconds:.0f}")


def _finished(ctx: Any, height: int, seconds: float) -> media.Facts | None:
    """Facts of this shard's rendition if it is there and plays to its end."""
    if not ctx.artifacts.exists(RENDITION):
        return None
    try:
        with ctx.artifacts.open(RENDITION) as file:
            facts = media.inspect(file)
    except media.BadVideo:
        return None
    return facts if facts.height == height and facts.seconds >= seconds * 0.98 - media.LOST_SECONDS else None


def _permanent(work: Any, *args: Any) -> Any:
    """A video that cannot be read will not mend by waiting: no retry is spent on it."""
    try:
        return work(*args)
    except media.BadVideo as error:
        raise Fail(str(error)) from error
