"""Keys that are understood and not built yet are refused by name."""

from __future__ import annotations

import pytest

from tests.definitions.helpers import refused, spec, two_steps

EXAMPLES = {
    "exclusive": ("exclusive: subject\nsteps: [{id: a}]\n", "`exclusive` is not built yet"),
    "step.topic": (two_steps("topic: gpu"), "step 'b': `topic` is not built yet in this version"),
    "step.join_timeout": (two_steps("fan_out: [1]\n    join_timeout: 1h"), "step 'b': `join_timeout` is not built yet"),
}


@pytest.mark.parametrize("key", sorted(EXAMPLES))
def test_what_a_version_has_not_built_is_refused_by_name(key):
    text, reason = EXAMPLES[key]
    spec(text)  # the key is understood
    problems = refused(text, not_built=frozenset({key}))
    assert len(problems) == 1
    assert reason in problems[0]
