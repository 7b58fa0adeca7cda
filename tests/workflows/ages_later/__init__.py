"""Version 2 of the workflow ``ages``: a step is gone and another has come in its place."""

from tests.workflows.kit import handlers  # noqa: F401
