"""Version 1 of a workflow, and the code that it needs: one of its handlers is gone in ``ages_later``."""

from tests.workflows.ages import handlers as handlers
