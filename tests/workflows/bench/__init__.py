"""No-op workflows in the shapes that the measurements use."""

from tests.workflows.bench import handlers  # noqa: F401
