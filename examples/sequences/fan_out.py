"""The serialised fan-out: one task for each image, and one at a time over the whole fleet."""

from __future__ import annotations

from typing import Any

from examples.sequences import service
from orchestrator.sdk import step


@step("carousel.list_images")
def list_images(ctx: Any) -> dict[str, Any]:
    """Says which images there are."""
    return {"images": [f"{ctx.subject_id}-{number}.jpg" for number in range(1, ctx.input["count"] + 1)]}


@step("carousel.ocr_image")
def ocr_image(ctx: Any) -> str:
    """Called once for each image."""
    return service.recognise(ctx.item)


@step("carousel.index")
def index(ctx: Any) -> dict[str, str]:
    """Finds the outputs of all shards by their names."""
    texts: dict[str, str] = ctx.output("ocr_image")
    return texts
