"""Shapes of the kit with so many tries that no fault alone can fail a run: what a soak starts."""

from tests.workflows.kit import handlers  # noqa: F401
