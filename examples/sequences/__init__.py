"""A workflow package: each sequence of docs/sequences.md as one small definition and its handlers."""

from examples.sequences import chain, fan_out, join, locks, loop, tree

__all__ = ["chain", "fan_out", "join", "locks", "loop", "tree"]
