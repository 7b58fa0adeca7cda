"""A person starts a run: a new one, or an old one's input once more."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from orchestrator.core.actor import Actor, require
from orchestrator.core.errors import Conflict, Invalid, NotFound
from orchestrator.core.mask import StillMasked, unmask
from orchestrator.core.text import clean
from orchestrator.engine import history
from orchestrator.engine.db import caller_transaction
from orchestrator.engine.edit import Audit
from orchestrator.engine.submit import submit_once
from orchestrator.models import Run


def start_run(actor: Actor, reason: str = "", *, again: UUID | None = None, **arguments: Any) -> tuple[UUID, bool]:
    """Starts a run with the arguments of :func:`submit`, and records who did; also whether this call made it.

    ``again``: the run whose input and labels were shown, masked, to be edited. What is masked still in the new ones is
    taken from the same place of the old ones, if the workflow is the same.

    Raises:
        NotAllowed, NotFound: the role is below operator; no such workflow, version or old run.
        Invalid, TooLarge, Conflict: as :func:`submit`; ``field`` names the argument.
    """
    require(actor, "operator")
    if again is not None:
        arguments |= _unmasked(again, arguments)
    refused: Conflict | None = None
    with caller_transaction() as conn:
        try:
            run_id, made = submit_once(actor, **arguments)
        except Conflict as error:
            refused = error  # its record is to stay
        else:
            if made:
                after = {"state": "running", **({"from": str(again)} if again else {})}
                record = Audit.of(actor, "submit", clean(reason.strip(), 2000), after=after)
                history.insert_audit(conn, [(run_id, record)])
    if refused is not None:
        raise refused
    return run_id, made


def _unmasked(again: UUID, arguments: dict[str, Any]) -> dict[str, Any]:
    old = Run.objects.only("workflow", "input", "labels").filter(pk=again).first()
    if old is None:
        raise NotFound(f"there is no run {again} any more to take the input from", field="input")
    same = old.workflow == arguments.get("workflow")
    found = {}
    for name in ("input", "labels"):
        value = arguments.get(name)
        if value:
            try:
                found[name] = unmask(value, getattr(old, name) if same else None)
            except StillMasked as problem:
                raise Invalid(f"{name}: {problem}", field=name) from None
    return found
