"""The measured shapes as Switchyard workflows: a chain, a wide fan-out, the shape of a video upload."""

from bench.workflows import handlers  # noqa: F401
