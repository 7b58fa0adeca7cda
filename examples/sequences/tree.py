"""Parents and children: runs started by a step, waited for without a worker."""

from __future__ import annotations

from typing import Any

from orchestrator.sdk import step, submit


@step("digest.collect")
def collect(ctx: Any) -> list[str]:
    """No ``parent=`` is needed: the running step is known. A second attempt finds the children of the first."""
    return [str(submit("pipe", f"{ctx.subject_id}/link-{number}")) for number in range(1, ctx.input["links"] + 1)]


@step("digest.sources")
def sources(ctx: Any) -> list[str]:
    """What to read, decided at run time."""
    return ["news", "mail"]


@step("digest.publish")
def publish(ctx: Any) -> dict[str, Any]:
    """The output of a child run is the output of its last step."""
    return {source: output["kept"] for source, output in ctx.output("read").items()}
