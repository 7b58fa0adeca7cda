"""One script for each system under measurement; all share ``common`` and ``driver``. See ``docs/benchmarks.md``."""
