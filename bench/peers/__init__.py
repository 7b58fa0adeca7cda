"""One script for each system under measurement; ``common`` is what they share. See ``docs/benchmarks.md``."""
