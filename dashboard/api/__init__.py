"""The JSON API at ``/api/v1``: reads requests strictly, calls use cases, writes their answers. No rules of its own."""
