"""A made-up history of a shop, for looking at pages and measuring them: see :func:`history.generate`."""

from orchestrator.testing.demo.history import Made, generate

__all__ = ["Made", "generate"]
