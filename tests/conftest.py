"""Fixtures for all tests. ``live`` gives real worker and dispatcher processes a database of their own."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from django.apps import apps
from django.core.cache import caches
from django.db import connections
from django.test.utils import setup_databases, teardown_databases
from pytest_django.plugin import blocking_manager_key

from orchestrator import services
from tests import settings as test_settings
from tests.harness.live import Live
from tests.harness.scratch import ScratchDatabase, others_are_connected


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Remembers on the item whether its test failed, for fixtures that then say more."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if report.when == "call":
        item.stash[FAILED] = report.failed


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """A test that commits ends with a flush, which takes the role groups that migrations made; they come back here."""
    yield
    mark = item.get_closest_marker("django_db")
    if mark is not None and mark.kwargs.get("transaction"):
        with item.config.stash[blocking_manager_key].unblock():
            for name in ROLES_MADE_BY:
                import_module(f"dashboard.migrations.{name}").forwards(apps, None)


def pytest_sessionfinish() -> None:
    """Stops the private servers if this session started them and nobody else is on them."""
    names = test_settings.STARTED
    if names and not others_are_connected():
        connections.close_all()
        services.stop(names=names)


# On a busy machine an example may take long; that says nothing about the rule.
hypothesis.settings.register_profile(
    "steady", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow], print_blob=True
)
hypothesis.settings.load_profile("steady")


@pytest.fixture(autouse=True)
def nothing_kept() -> None:
    """What pages keep for a while is of the test before."""
    for cache in caches.all():
        cache.clear()


FAILED = pytest.StashKey[bool]()
#: The migrations that make groups and permissions.
ROLES_MADE_BY = ("0001_initial", "0002_saved_views")
#: The session's scratch database, from when the test database has been migrated.
SCRATCH: list[ScratchDatabase] = []


@pytest.fixture(scope="session")
def django_db_setup(
    django_test_environment: None, django_db_blocker: Any, django_db_keepdb: bool, django_db_createdb: bool
) -> Iterator[None]:
    """pytest-django's own, but always: by itself it looks at the ``django_db`` marks, which ``live`` tests lack."""
    keep = django_db_keepdb and not django_db_createdb
    with django_db_blocker.unblock():
        made = setup_databases(verbosity=0, interactive=False, aliases={"default"}, keepdb=keep)
        # Copied now: tests that flush the database take with them what migrations put there (groups and permissions).
        SCRATCH.append(ScratchDatabase.make())
    yield
    while SCRATCH:
        with django_db_blocker.unblock():
            SCRATCH.pop().drop()
    if not django_db_keepdb:
        with django_db_blocker.unblock():
            teardown_databases(made, verbosity=0)


@pytest.fixture(scope="session")
def scratch_database(django_db_setup: None, django_db_blocker: Any) -> Iterator[ScratchDatabase]:
    """A database for committed data, copied from pytest-django's freshly migrated one."""
    with django_db_blocker.unblock():
        try:
            yield SCRATCH[0]
        finally:
            SCRATCH.pop().drop()


@pytest.fixture
def live(
    request: pytest.FixtureRequest,
    scratch_database: ScratchDatabase,
    django_db_blocker: Any,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Iterator[Live]:
    """Committed data and real processes; do not combine with ``db`` or the ``django_db`` mark. See :class:`Live`."""
    with django_db_blocker.unblock(), scratch_database.in_use():
        fixture = Live(scratch_database, settings, monkeypatch, tmp_path)
        try:
            yield fixture
        finally:
            fixture.end()
            if request.node.stash.get(FAILED, False):
                for process in fixture.processes:
                    request.node.add_report_section("call", process.name, process.log_tail())
            scratch_database.empty()
