"""The Content Security Policy of the pages: own files only, nothing inline, no eval."""

from __future__ import annotations

from typing import Any

from csp.constants import NONE, SELF

CONTENT_SECURITY_POLICY: dict[str, Any] = {
    # Django's admin and django-rq's pages inside it carry inline styles of their own.
    "EXCLUDE_URL_PREFIXES": ["/admin/", "/django-rq/"],
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF],
        "font-src": [SELF],
        "img-src": [SELF],
        "media-src": [SELF],
        "connect-src": [SELF],
        "form-action": [SELF],
        "base-uri": [NONE],
        "frame-ancestors": [NONE],
        "object-src": [NONE],
    },
}
