"""The laws of the house as functions over one file's syntax tree; ``test_structure`` applies them to every file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CODE = ("orchestrator", "dashboard")
MAX_LINES = 320

#: A module may import from its own layer and from those with a smaller number. Longest name wins.
LAYERS = {
    "orchestrator": 0,  # the package itself: no code
    "orchestrator.core": 0,
    "orchestrator.services": 1,  # the private servers; settings ask for their addresses
    "orchestrator.config": 1,
    "orchestrator.models": 1,
    "orchestrator.migrations": 1,
    "orchestrator.postgres": 1,  # Django's database backend, with our own settings of a connection
    "orchestrator.definitions": 2,
    "orchestrator.engine": 3,
    "orchestrator.sdk": 3,
    "orchestrator.testing": 4,
    "orchestrator.transport": 4,
    "orchestrator.alerts": 5,
    "orchestrator.metrics": 5,
    "orchestrator.readiness": 5,
    "orchestrator.management": 6,
    "dashboard": 6,
    # What puts the parts together may know all of them.
    "orchestrator.apps": 9,
    "orchestrator.settings": 9,
    "orchestrator.urls": 9,
    "orchestrator.wsgi": 9,
}
#: Pure: no Django at all.
PURE = ("orchestrator.core", "orchestrator.config", "orchestrator.definitions")
NOT_PURE = ("orchestrator.definitions.publish",)  # it stores
#: Only transport talks to RQ and Redis. django-rq's own pages are mounted in the admin as they are.
BROKER = {"rq": (), "redis": (), "valkey": (), "django_rq": ("dashboard.admin",)}
STATE_WRITER = "orchestrator/engine/transitions.py"
#: Makes up a past, in databases that may be played with; it changes nothing that is there.
HISTORY_WRITER = "orchestrator/testing/demo/stamp.py"
_TABLE = r"(ONLY\s+)?\"?workflow_(runs|steps)\b"
#: Rows are made, or an update sets (or compares) a state. An update that never names one, of progress say, is no such.
STATE_SQL = re.compile(
    rf"\b(INSERT|MERGE)\s+INTO\s+{_TABLE}|\bUPDATE\s+{_TABLE}(?=.*?\bstate\s*=)", re.IGNORECASE | re.DOTALL
)
STATE_MODELS = {"Run", "Step", "Compensation"}
WRITES = {"update", "create", "bulk_create", "bulk_update", "get_or_create", "update_or_create", "aupdate", "acreate"}
LONG_FILES = {"static/css/console.css": "the whole look in one file, in the order of the design"}
NOT_OURS = {
    ".venv",
    ".venvs",
    ".git",
    ".local",
    "vendor",
    "migrations",
    "node_modules",
    "staticfiles",
    "results",
    "__pycache__",
}


def files(*suffixes: str, under: tuple[str, ...] = (".",)) -> list[Path]:
    found = [path for top in under for path in (ROOT / top).rglob("*") if path.suffix in suffixes and path.is_file()]
    return sorted(path for path in found if not NOT_OURS & set(path.relative_to(ROOT).parts))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def sources() -> list[Path]:
    return files(".py", under=CODE)


def imports(tree: ast.AST, module: str, package: bool = False) -> Iterator[tuple[str, int]]:
    """Every imported module with its line, wherever in the file it is imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = module.split(".") if package else module.split(".")[:-1]
                kept = parents[: len(parents) - node.level + 1]
                base = ".".join([*kept, base]) if base else ".".join(kept)
            # `from orchestrator import engine` imports orchestrator.engine; of a name in a module it does no harm.
            yield from ((f"{base}.{alias.name}", node.lineno) for alias in node.names)


def layer(module: str) -> int | None:
    """The layer of the longest listed name; the bare package stands only for itself."""
    parts = module.split(".")
    for length in range(len(parts), 1 if parts[0] == "orchestrator" else 0, -1):
        number = LAYERS.get(".".join(parts[:length]))
        if number is not None:
            return number
    return LAYERS.get(module)


def upward(tree: ast.AST, module: str, package: bool = False) -> list[str]:
    own = layer(module)
    bad = []
    for target, line in imports(tree, module, package):
        if target.split(".")[0] not in CODE:
            continue
        other = layer(target)
        if own is None or other is None or other > own:
            bad.append(f"{module}:{line} imports {target}")
    return bad


def within(name: str, parents: tuple[str, ...] | list[str]) -> bool:
    return any(f"{name}.".startswith(f"{parent}.") for parent in parents)


def broker(tree: ast.AST, module: str) -> list[str]:
    return [
        f"{module}:{line} imports {target}"
        for target, line in imports(tree, module)
        if target.split(".")[0] in BROKER
        and not within(module, ["orchestrator.transport", *BROKER[target.split(".")[0]]])
    ]


def django_in_pure(tree: ast.AST, module: str) -> list[str]:
    if not within(module, PURE) or within(module, NOT_PURE):
        return []
    return [
        f"{module}:{line} imports {target}" for target, line in imports(tree, module) if within(target, ("django",))
    ]


def signals(tree: ast.AST, module: str) -> list[str]:
    return [
        f"{module}:{line} imports {target}"
        for target, line in imports(tree, module)
        if within(target, ("django.dispatch",)) or (within(target, ("django",)) and "signals" in target.split("."))
    ]


def save_overrides(tree: ast.AST, module: str) -> list[str]:
    return [
        f"{module}:{item.lineno} overrides {node.name}.{item.name}()"
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for item in node.body
        if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)) and item.name in ("save", "asave")
    ]


def docstrings(tree: ast.AST) -> set[int]:
    return {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def names_in(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} | {
        n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)
    }


def state_writes(tree: ast.AST, module: str) -> list[str]:
    """ORM writes that name ``state``, and SQL that writes the two tables. Dead letters have a state of their own."""
    bad = []
    described = docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in WRITES:
            named = any(k.arg == "state" for k in node.keywords) or any(
                isinstance(inner, ast.Constant) and inner.value == "state"
                for given in [*node.args, *[k.value for k in node.keywords]]
                for inner in ast.walk(given)
            )
            made = node.func.attr.startswith(("create", "acreate", "bulk_create", "get_or", "update_or"))
            of_ours = STATE_MODELS & names_in(node)
            if (named and "DeadLetter" not in names_in(node.func)) or (made and of_ours):
                bad.append(f"{module}:{node.lineno} writes a state by .{node.func.attr}()")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in described:
            found = STATE_SQL.search(node.value)
            if found:
                bad.append(f"{module}:{node.lineno} writes a state in SQL: {found[0]}")
    return bad


def statement_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Names of the statements in engine/sql that a file loads: the text constants in calls of ``sql(…)``."""
    for node in ast.walk(tree):
        called = node.func if isinstance(node, ast.Call) else None
        if (isinstance(called, ast.Name) and called.id == "sql") or (
            isinstance(called, ast.Attribute) and called.attr == "sql"
        ):
            assert isinstance(node, ast.Call)
            for inner in (n for given in node.args for n in ast.walk(given)):
                if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                    yield inner.value, node.lineno


def writing_statements() -> set[str]:
    return {path.stem for path in files(".sql", under=CODE) if STATE_SQL.search(path.read_text())}


def foreign_statements(tree: ast.AST, module: str, writing: set[str]) -> list[str]:
    return [
        f"{module}:{line} loads {name}.sql, which writes" for name, line in statement_names(tree) if name in writing
    ]
