"""People of the four roles, signed in."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from orchestrator.core.ids import new_run_id
from orchestrator.models import Run
from tests.harness.factory import definition

SignIn = Callable[..., Client]


@pytest.fixture
def sign_in(db: None) -> SignIn:
    """``sign_in("operator")``: a client of somebody with that role; ``sign_in("")``: with none."""

    def make(role: str = "viewer", **client: object) -> Client:
        user, _ = User.objects.get_or_create(username=role or "nobody")
        user.groups.set(Group.objects.filter(name=role))
        signed_in = Client(**client)  # type: ignore[arg-type]
        signed_in.force_login(user)
        return signed_in

    return make


@pytest.fixture
def viewer(sign_in: SignIn) -> Client:
    """A client of somebody who may only look."""
    return sign_in("viewer")


def many(count: int) -> None:
    """Finished runs numbered from 1, the oldest first."""
    made = definition()
    Run.objects.bulk_create(
        Run(
            id=new_run_id(1_700_000_000_000 + n),
            definition=made,
            workflow="video-upload",
            version=3,
            subject_id=f"s-{n:03d}",
            state="done",
            deadline_seconds=60,
            finished_at="2030-01-01T00:00:00Z",
        )
        for n in range(1, count + 1)
    )
