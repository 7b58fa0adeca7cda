"""What can only be checked when all steps are known: order, cycles, and outputs that are used before they exist."""

from __future__ import annotations

from collections import Counter

from orchestrator.core.graph import Ancestry, Graph, find_cycle, find_path, spell
from orchestrator.definitions.fields import show
from orchestrator.definitions.load import Map
from orchestrator.definitions.parse_parts import Context, Draft, Reference
from orchestrator.definitions.templates import Placeholder

#: Roots of a placeholder that are no step, and whether a path may follow.
ROOTS = {"subject_id": False, "run_id": False, "shard": False, "item": True, "input": True}


def check_steps(context: Context, drafts: list[Draft], sources: list[Map]) -> None:
    """Note every mistake between steps; ``sources`` are the mappings the drafts were read from."""
    problems = context.problems
    lines: dict[str, int] = {}
    graph: dict[str, list[str]] = {}
    after_lines: dict[str, int] = {}
    for draft, data in zip(drafts, sources, strict=True):
        step = draft["id"]
        if not step:
            continue
        if step in lines:
            problems.add(data.lines["id"], f"step id '{step}' is repeated (first on line {lines[step]})")
            continue
        lines[step] = data.lines["id"]
        after_lines[step] = data.lines.get("after", data.line)
        graph[step] = draft["after"]
    broken = False
    for step, before in graph.items():
        for name in before:
            if name not in graph:
                broken = True
                problems.add(after_lines[step], f"step '{step}': `after` names {show(name)}, which is no step here")
    if broken or not graph:
        return
    cycle = find_cycle(graph)
    if cycle:
        problems.add(
            after_lines[cycle[0]],
            f"step '{cycle[0]}': steps wait for each other in a cycle: {spell(cycle)}; take one `after` away",
        )
        return
    fans = {draft["id"] for draft in drafts if draft["fan_out"] is not None}
    _check_references(context, graph, fans)


def _check_references(context: Context, graph: Graph, fans: set[str]) -> None:
    ancestry = Ancestry(graph)
    for ref in context.references:
        if ref.step not in graph:
            continue
        reason = _root_problem(ref, fans) if ref.template and ref.target.root in ROOTS else None
        if not (ref.template and ref.target.root in ROOTS):
            reason = _step_problem(ref, graph, ancestry)
        if reason:
            context.problems.add(ref.line, f"step '{ref.step}': `{ref.key}` {reason}")


def _root_problem(ref: Reference, fans: set[str]) -> str | None:
    if ref.target.path and not ROOTS[ref.target.root]:
        return f"uses {{{ref.target}}}, but {ref.target.root} is a plain text; write {{{ref.target.root}}}"
    if ref.target.root == "item" and ref.step not in fans:
        return f"uses {{{ref.target}}}, which only a step with a `fan_out` has"
    return None


def _step_problem(ref: Reference, graph: Graph, ancestry: Ancestry) -> str | None:
    """Why a step's output cannot be used here, if it cannot."""
    root = ref.target.root
    said = f"{{{ref.target}}}" if ref.template else show(str(ref.target))
    if root not in graph:
        known = f"; it can begin with a step's id or {', '.join(ROOTS)}" if ref.template else ""
        return f"uses {said}, but '{root[:60]}' is no step here{known}"
    if root == ref.step or ancestry.is_before(ref.step, root):
        way = find_path(graph, ref.step, root) or [ref.step]
        return f"uses {said}, which does not exist yet; that is a cycle: {spell([*way, ref.step])}"
    if not ancestry.is_before(root, ref.step):
        return f"uses {said}, but '{root}' need not have run before; add `{root}` to `after`"
    return None


def check_schedule_subject(text: str, found: list[Placeholder]) -> str | None:
    """Why the subject of a schedule cannot be filled in, if it cannot."""
    for target in found:
        if str(target) not in ("date", "time", "datetime"):
            return f"uses {{{target}}}; a schedule knows {{date}}, {{time}} and {{datetime}}"
    return None


def name_compensations(drafts: list[Draft], on_failure: list[Draft]) -> None:
    """Give each compensation the step name of its row, unique in the definition and as plain as possible.

    The handler's own name where no step and no other compensation has it, else ``handler:step``; entries of
    ``on_failure`` become ``handler:on_failure``, then ``handler:on_failure:2`` and so on.
    """
    own = [(draft["compensate"], draft["id"]) for draft in drafts if draft["compensate"] is not None]
    uses = Counter(undo["handler"] for undo in [undo for undo, _ in own] + on_failure)
    taken = {draft["id"] for draft in drafts}
    for undo, step in own + [(undo, "on_failure") for undo in on_failure]:
        handler = undo["handler"]
        name = handler
        if uses[handler] > 1 or handler in taken:
            base = name = f"{handler}:{step}"
            number = 2
            while name in taken:
                name = f"{base}:{number}"
                number += 1
        undo["name"] = name
        taken.add(name)
