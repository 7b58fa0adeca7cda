"""Workflows whose handlers do what the run's input says, in every shape that the engine has to get right."""

from tests.workflows.kit import handlers  # noqa: F401
