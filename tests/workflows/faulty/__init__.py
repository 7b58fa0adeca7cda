"""A workflow package for tests of the fault matrix: one that is right, and copies that are each wrong in one way."""

from tests.workflows.faulty import handlers as handlers
