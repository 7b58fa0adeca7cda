"""Every address of the site, found by walking the URL table: nothing that is added to it escapes the tests that do.

``addresses(samples)`` answers one :class:`Address` for each pattern, with the values of ``samples`` (by the parameter's
name) filled in; a parameter without one gets a value that its converter accepts, so that a new page is looked at
before anybody has named it here.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.urls import URLPattern, URLResolver, get_resolver
from django.urls.resolvers import RoutePattern

#: What a converter accepts, where no sample is given.
_ANY = {"IntConverter": 1, "UUIDConverter": uuid.UUID(int=7), "SlugConverter": "some", "StringConverter": "some",
        "PathConverter": "some"}  # fmt: skip
_PART = re.compile(r"<(?:(\w+):)?(\w+)>")
_GROUP = re.compile(r"\(\?P<(\w+)>((?:\[[^\]]*\]|[^()\[\]])*)\)")


@dataclass(frozen=True)
class Address:
    """One pattern. ``name`` with its namespaces; ``least``: role that its view asks for, where it says."""

    name: str
    path: str
    route: str
    least: str
    callback: Any

    @property
    def part(self) -> str:
        """api, admin, service (health, metrics) or dashboard."""
        top = self.path.split("/")[1]
        if top in ("api", "admin"):
            return top
        return "service" if top in ("healthz", "readyz", "metrics") else "dashboard"


def addresses(samples: Mapping[str, Any]) -> list[Address]:
    """All of them, each path once; of a regular expression with alternatives one for each."""
    seen: dict[str, Address] = {}
    for address in _walk(get_resolver().url_patterns, "/", "", samples):
        seen.setdefault(address.path, address)
    return list(seen.values())


def _walk(patterns: list[Any], prefix: str, space: str, samples: Mapping[str, Any]) -> Iterator[Address]:
    for pattern in patterns:
        for text in _filled(pattern.pattern, samples):
            path = prefix + text
            if isinstance(pattern, URLResolver):
                inner = f"{space}{pattern.namespace}:" if pattern.namespace else space
                yield from _walk(pattern.url_patterns, path, inner, samples)
            elif isinstance(pattern, URLPattern):
                least = getattr(pattern.callback, "required_role", "")
                yield Address(f"{space}{pattern.name or ''}", path, str(pattern.pattern), least, pattern.callback)


def _filled(pattern: Any, samples: Mapping[str, Any]) -> list[str]:
    if isinstance(pattern, RoutePattern):
        return [_PART.sub(lambda found: str(_value(found[2], pattern.converters, samples)), str(pattern))]
    texts = [str(pattern).lstrip("^").rstrip("$").replace("/?", "/")]
    for name, choices in _GROUP.findall(str(pattern)):
        words = choices.split("|") if re.fullmatch(r"[\w|-]+", choices) else [str(samples.get(name, "1"))]
        texts = [_put(text, name, word) for text in texts for word in words]
    return [text.replace("?", "") for text in texts]


def _put(text: str, name: str, word: str) -> str:
    return _GROUP.sub(lambda found: word if found[1] == name else found[0], text)


def _value(name: str, converters: Mapping[str, Any], samples: Mapping[str, Any]) -> Any:
    kind = type(converters[name]).__name__
    return samples.get(name, _ANY.get(kind, "some"))
