"""Keys that are understood and not built yet are refused by name."""

from __future__ import annotations

import pytest

from orchestrator.definitions.not_built import NOT_BUILT
from tests.definitions.helpers import refused, spec, two_steps

NOT_BUILT_EXAMPLES = {
    "step.input": (two_steps("workflow: w", "input: {}"), "step 'b': `input` is not built yet"),
    "step.subject_id": (two_steps("workflow: w", "subject_id: x"), "step 'b': `subject_id` is not built yet"),
    "step.workflow": (two_steps("workflow: w"), "step 'b': `workflow` is not built yet"),
}


@pytest.mark.parametrize("key", sorted(NOT_BUILT))
def test_what_is_not_built_is_refused_by_name(key):
    text, reason = NOT_BUILT_EXAMPLES[key]
    spec(text)  # the key is understood
    problems = refused(text, not_built=frozenset({key}))
    assert len(problems) == 1
    assert reason in problems[0]
