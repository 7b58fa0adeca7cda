"""Definitions: YAML in, validated and published versions out; and the registry of handlers."""
