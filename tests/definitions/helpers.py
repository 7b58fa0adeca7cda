"""Short ways to write a definition in a test."""

from __future__ import annotations

import pytest

from orchestrator.definitions.errors import DefinitionError
from orchestrator.definitions.parse import Loaded, loads
from orchestrator.definitions.parse_parts import Defaults

HEAD = "workflow: shop\nversion: 1\n"


def spec(text: str, *, head: str = HEAD, defaults: Defaults | None = None):
    """The spec of a definition with every key built; ``head`` comes before the text."""
    return full(text, head=head, defaults=defaults).spec


def full(text: str, *, head: str = HEAD, defaults: Defaults | None = None) -> Loaded:
    return loads(head + text, "shop.yaml", defaults, not_built=frozenset())


def step(*lines: str):
    """The step ``b`` with these keys, after a step ``a``."""
    return spec(two_steps(*lines)).step("b")


def two_steps(*lines: str) -> str:
    return "steps:\n  - id: a\n  - id: b\n" + "".join(f"    {line}\n" for line in lines)


def refused(text: str, *, head: str = HEAD, not_built: frozenset[str] = frozenset()) -> list[str]:
    """The problems of a definition that must be refused, as text."""
    with pytest.raises(DefinitionError) as caught:
        loads(head + text, "shop.yaml", not_built=not_built)
    return [str(problem) for problem in caught.value.problems]


def refused_step(*lines: str) -> str:
    """The only problem of step ``b`` with these keys; its own lines begin at 6."""
    problems = refused(two_steps(*lines))
    assert len(problems) == 1, problems
    return problems[0]
