"""Retry: what runs again, what is kept, under which key and budget; dead letters replayed and discarded."""

from __future__ import annotations




