"""The laws of the house, kept by reading the source: who imports whom, who writes states, how long a file may be.

Each law is tried below on a few lines that break it: a law that cannot fail protects nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection

import pytest

from tests.core.laws import (
    CODE,
    HISTORY_WRITER,
    LONG_FILES,
    MAX_LINES,
    ROOT,
    STATE_WRITER,
    broker,
    django_in_pure,
    files,
    foreign_statements,
    layer,
    module_of,
    name_of,
    save_overrides,
    signals,
    sources,
    state_writes,
    statement_names,
    tree_of,
    upward,
    writing_statements,
)


def broken(law: Callable[..., list[str]], *more, skip: Collection[str] = ()) -> list[str]:
    """What breaks this law anywhere but in these files."""
    return [
        text for path in sources() if name_of(path) not in skip for text in law(tree_of(path), module_of(path), *more)
    ]


def test_arrows_point_down():
    bad = [
        text
        for path in sources()
        for text in upward(tree_of(path), module_of(path), package=path.name == "__init__.py")
    ]
    assert not bad, "\n".join(bad)


def test_every_module_has_a_layer():
    assert [module_of(path) for path in sources() if layer(module_of(path)) is None] == []


def test_only_transport_knows_rq_and_redis():
    assert not (bad := broken(broker)), "\n".join(bad)


def test_core_and_definitions_are_pure():
    assert not (bad := broken(django_in_pure)), "\n".join(bad)


def test_no_django_signals():
    assert not (bad := broken(signals)), "\n".join(bad)
    assert [name_of(path) for path in sources() if path.name in ("signals.py", "receivers.py")] == []


def test_no_save_overrides():
    assert not (bad := broken(save_overrides)), "\n".join(bad)


def test_one_file_writes_states():
    assert not (bad := broken(state_writes, skip=(STATE_WRITER, HISTORY_WRITER))), "\n".join(bad)


def test_statements_that_write_states_are_loaded_by_that_file_alone():
    assert not (bad := broken(foreign_statements, writing_statements(), skip=(STATE_WRITER,))), "\n".join(bad)
    outside = [name_of(path) for path in files(".sql", under=CODE) if path.parent != ROOT / "orchestrator/engine/sql"]
    assert outside == [], "statements live in engine/sql"


def test_every_statement_is_used_and_every_used_one_is_there():
    there = {path.stem for path in files(".sql", under=("orchestrator/engine/sql",))}
    used = {name for path in sources() for name, _ in statement_names(tree_of(path))}
    assert sorted(used ^ there) == []


def test_the_map_of_the_engine_names_every_file():
    folder = ROOT / "orchestrator/engine"
    text = ast.get_docstring(tree_of(folder / "__init__.py")) or ""
    there = {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert sorted(there - {"__init__"} - set(re.findall(r"\w+", text))) == []


def test_the_map_of_the_code_names_files_that_are_there():
    named = re.findall(r"`((?:\w+/)+[\w.]*)`", (ROOT / "docs/code.md").read_text())
    tops = (ROOT, ROOT / "orchestrator", ROOT / "orchestrator/engine")
    assert len(named) > 20
    assert [name for name in named if not any((top / name).exists() for top in tops)] == []


def test_files_are_short():
    long = {}
    for path in files(".py", ".html", ".css", ".js"):
        count = path.read_text(errors="replace").count("\n")
        if count > MAX_LINES and name_of(path) not in LONG_FILES:
            long[name_of(path)] = count
    assert long == {}


def test_exempt_files_are_still_there_and_still_long():
    for name in LONG_FILES:
        path = ROOT / name
        assert not path.exists() or path.read_text().count("\n") > MAX_LINES, f"{name} needs no exemption any more"


ENGINE = "orchestrator.engine.thing"


@pytest.mark.parametrize(
    ("law", "module", "source"),
    [
        (upward, "orchestrator.core.x", "import orchestrator.models"),
        (upward, "orchestrator.core.x", "def f():\n    from orchestrator.engine import submit"),
        (upward, "orchestrator.core.x", "from orchestrator import engine"),
        (upward, "orchestrator.models.x", "from ..engine import submit"),
        (upward, ENGINE, "from orchestrator.transport.tickets import push"),
        (upward, ENGINE, "from dashboard.words import word"),
        (upward, "orchestrator.transport.x", "import dashboard"),
        (upward, "orchestrator.core.x", "import orchestrator.nowhere"),
        (broker, ENGINE, "import redis"),
        (broker, ENGINE, "from rq.job import Job"),
        (broker, "dashboard.views.x", "import django_rq"),
        (django_in_pure, "orchestrator.core.x", "from django.db import models"),
        (django_in_pure, "orchestrator.definitions.spec", "import django"),
        (signals, ENGINE, "from django.db.models.signals import post_save"),
        (signals, ENGINE, "from django.db.models import signals"),
        (signals, ENGINE, "from django.dispatch import receiver"),
        (save_overrides, ENGINE, "class Run(Model):\n    def save(self): ..."),
        (state_writes, ENGINE, "Run.objects.filter(pk=1).update(state='done')"),
        (state_writes, ENGINE, "rows.update(state=x, cause=None)"),
        (state_writes, ENGINE, "rows.update(**{'state': 'done'})"),
        (state_writes, ENGINE, "Step.objects.bulk_update(rows, ['cause', 'state'])"),
        (state_writes, ENGINE, "Step.objects.create(run=run)"),
        (state_writes, ENGINE, "Run.objects.bulk_create([Run(id=1)])"),
        (state_writes, ENGINE, "cursor.execute('update workflow_steps set state = 1')"),
        (state_writes, ENGINE, "cursor.execute(f'INSERT INTO workflow_runs ({x})')"),
    ],
)
def test_each_law_can_fail(law, module, source):
    assert len(law(ast.parse(source), module)) == 1


@pytest.mark.parametrize(
    ("law", "module", "source"),
    [
        (
            upward,
            ENGINE,
            "from orchestrator.core.states import RunState\nfrom orchestrator.models import Run\nimport json",
        ),
        (upward, "dashboard.views.x", "from orchestrator.engine.operate import cancel_run\nfrom ..words import word"),
        (broker, "orchestrator.transport.tickets", "from redis import Redis\nimport rq\nimport django_rq"),
        (django_in_pure, "orchestrator.definitions.publish", "from django.db import transaction"),
        (signals, ENGINE, "import signal"),
        (save_overrides, ENGINE, "class Admin:\n    def save_model(self): ..."),
        (state_writes, ENGINE, "Topic.objects.filter(pk=1).update(limit=2)\nseen.update(other)"),
        (state_writes, ENGINE, "DeadLetter.objects.filter(pk=1).update(state='discarded')"),
        (
            state_writes,
            ENGINE,
            "def f():\n    '''Never UPDATE workflow_runs here.'''\nq = 'SELECT state FROM workflow_runs'",
        ),
        (state_writes, ENGINE, "q = 'UPDATE workflow_steps SET progress = 1 WHERE id = 2'"),
    ],
)
def test_no_law_cries_wolf(law, module, source):
    assert law(ast.parse(source), module) == []


def test_loading_a_writing_statement_elsewhere_is_seen():
    tree = ast.parse(
        "put(conn, sql('settle_steps'))\nrows(conn, transitions.sql('select_lost'))\nsql('a' if x else 'b')"
    )
    assert sorted(foreign_statements(tree, ENGINE, {"settle_steps", "b"})) == [
        f"{ENGINE}:1 loads settle_steps.sql, which writes",
        f"{ENGINE}:3 loads b.sql, which writes",
    ]
