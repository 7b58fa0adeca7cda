"""``python -m tests.scale.probe``: answers requests, one a line, on the database that DATABASE_URL names.

In: ``{"page": name, "explain": bool}`` or ``{"pages": true}``; out: the answer as one line of JSON.
"""

from __future__ import annotations

import json
import sys


def main() -> None:
    import django

    django.setup()
    from django.conf import settings

    from tests.scale import pages

    settings.ALLOWED_HOSTS = ["*"]
    client, known = pages.visitor(), pages.pages()
    for line in sys.stdin:
        asked = json.loads(line)
        if asked.get("pages"):
            answer = json.dumps(known)
        else:
            answer = pages.look(client, known[asked["page"]], explain=asked["explain"]).as_json()
        print(answer, flush=True)


if __name__ == "__main__":
    main()
