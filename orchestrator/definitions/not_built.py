"""Keys of the grammar whose behaviour this version does not have yet.

They are parsed and checked like all others, then refused by name, so that no definition is accepted and half obeyed.
A key goes from this list in the change that builds it.
"""

from __future__ import annotations

NOT_BUILT: frozenset[str] = frozenset()
