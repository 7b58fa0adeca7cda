"""``manage.py bootstrap``: what a first start needs, and every later one may repeat.

Publishes the workflows of the settings, makes a sign-in of each role and a token for the API, writes both to
``.local/credentials.json`` and submits the example runs into an empty database.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.core.management.base import CommandParser
from django.db import transaction

from orchestrator.core.actor import ROLES
from orchestrator.management import base
from orchestrator.models import ApiToken, Definition, Run
from orchestrator.services.state import write_private

FILE = "credentials.json"


class Command(base.Command):
    """See the module's text. Prints ``{"url", "users", "queues", "samples"}``; secrets are in the file alone."""

    help = (
        "Publish the workflows, make a sign-in of each role and an API token (in .local/credentials.json), "
        "submit the example runs into an empty database. May be repeated."
    )

    def arguments(self, parser: CommandParser) -> None:
        """``--url`` and ``--no-samples``."""
        parser.add_argument("--url", help="address of the pages, written beside the sign-ins")
        parser.add_argument("--no-samples", action="store_true", help="submit no example runs")

    def run(self, *args: Any, **options: Any) -> None:
        """All of it, in this order."""
        call_command("publish", stdout=self.stderr)
        url = options["url"] or f"http://127.0.0.1:{settings.PORT}"
        credentials = keep_credentials(settings.LOCAL_DIR / FILE, url)
        samples = 0 if options["no_samples"] or Run.objects.exists() else self._submit_samples()
        answer = {"url": url, "users": sorted(credentials["users"]), "queues": queues(), "samples": samples}
        self.emit(answer, text=f"sign-ins are in {settings.LOCAL_DIR / FILE}; {samples} example runs submitted")

    def _submit_samples(self) -> int:
        """A workflow package may have a module ``demo`` with a function ``submit_samples``."""
        count = 0
        for package in settings.ORCHESTRATOR.workflows:
            if importlib.util.find_spec(f"{package}.demo") is None:
                continue
            try:
                count += len(importlib.import_module(f"{package}.demo").submit_samples())
            except Exception as failure:  # examples must not keep the rest from starting
                self.note(f"the example runs of {package} were not submitted: {type(failure).__name__}: {failure}")
        return count


def keep_credentials(path: Path, url: str) -> dict[str, Any]:
    """Makes what is missing of the sign-ins and the token, and writes all of it to the file (mode 0600).

    In a database of your own an account that is there already keeps its password, and the file says null for it.
    """
    kept = _read(path)
    users = {role: {"password": _sign_in(role, _kept_password(kept, role))} for role in reversed(ROLES)}
    credentials = {"url": url, "token": _token(kept.get("token")), "users": users}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_private(path, json.dumps(credentials, indent=2) + "\n")
    return credentials


def queues() -> list[str]:
    """The queues of the settings and of every published definition, in that order."""
    found = dict.fromkeys(settings.ORCHESTRATOR.queues)
    for spec in Definition.objects.order_by("id").values_list("spec", flat=True):
        found.update(dict.fromkeys(_queues_of(spec)))
    return list(found)


def _queues_of(spec: dict[str, Any]) -> Iterator[str]:
    for step in spec["steps"]:
        yield step["queue"]
        if step["compensate"]:
            yield step["compensate"]["queue"]
    for undo in (spec["on_failure"] or {}).get("compensate", []):
        yield undo["queue"]


def _read(path: Path) -> dict[str, Any]:
    try:
        kept = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as problem:
        raise base.error(f"{path} cannot be read ({problem}); delete it, sign-ins are made anew") from None
    return kept if isinstance(kept, dict) else {}


def _kept_password(kept: dict[str, Any], role: str) -> str | None:
    users = kept.get("users")
    entry = users.get(role) if isinstance(users, dict) else None
    return entry.get("password") if isinstance(entry, dict) else None


@transaction.atomic
def _sign_in(role: str, password: str | None) -> str | None:
    """A user named after the role. The password that works, or ``None`` where it is not ours to know."""
    user, made = User.objects.get_or_create(username=role)
    if not made and password and user.check_password(password):
        return password
    if not made and not settings.DATABASE_IS_PRIVATE:
        return None
    user.is_active = user.is_staff = True
    user.is_superuser = role == ROLES[-1]
    password = password or secrets.token_urlsafe(9)
    user.set_password(password)
    user.save()
    user.groups.add(Group.objects.get_or_create(name=role)[0])
    return password


def _token(token: str | None) -> str:
    """A token of role admin: the one kept if the database knows it, else a new one."""
    token = token or secrets.token_urlsafe(32)
    digest = hashlib.sha256(token.encode()).hexdigest()
    if ApiToken.objects.filter(token_hash=digest, revoked_at=None).exists():
        return token
    if ApiToken.objects.filter(token_hash=digest).exists():  # revoked
        return _token(None)
    ApiToken.objects.create(name=f"make run, {digest[:6]}", token_hash=digest, role=ROLES[-1])
    return token
