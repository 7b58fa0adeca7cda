"""Handlers by name. A workflow package registers its functions when it is imported; the engine looks them up.

The handler ``probe`` of workflow ``video-upload`` is looked for as ``video-upload.probe``, then as ``probe``.
Steps and compensations have tables of their own, so the two may share a name.
"""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from orchestrator.core.states import Kind
from orchestrator.definitions.errors import HandlerMissing, HandlerTaken, PackageError
from orchestrator.definitions.fields import DOTTED, DOTTED_HINT, show

Handler = Callable[[Any], Any]
_F = TypeVar("_F", bound=Handler)
_handlers: dict[Kind, dict[str, Handler]] = {Kind.STEP: {}, Kind.COMPENSATION: {}}


def step(name: str) -> Callable[[_F], _F]:
    """Registers a function as the handler of a step: ``@step("video-upload.transcode")``.

    Raises:
        HandlerTaken: when another function has the name.
        TypeError: when the decorator is used without a name.
    """
    return _decorator(Kind.STEP, name)


def compensation(name: str) -> Callable[[_F], _F]:
    """Registers a function that undoes a step: ``@compensation("video-upload.delete_renditions")``.

    Raises:
        HandlerTaken: when another function has the name.
        TypeError: when the decorator is used without a name.
    """
    return _decorator(Kind.COMPENSATION, name)


def find(workflow: str, handler: str, kind: Kind | None = None) -> Handler | None:
    """The function registered for a handler's name, or None. ``kind`` None: a step's, else a compensation's."""
    for table in [_handlers[kind]] if kind else _handlers.values():
        for name in (f"{workflow}.{handler}", handler):
            if name in table:
                return table[name]
    return None


def resolve(workflow: str, handler: str, kind: Kind | None = None) -> Handler:
    """As :func:`find`.

    Raises:
        HandlerMissing: when nothing that is loaded here registers it; the message says what to do.
    """
    found = find(workflow, handler, kind)
    if found is None:
        raise HandlerMissing(missing(workflow, handler, kind))
    return found


def missing(workflow: str, handler: str, kind: Kind | None = None) -> str:
    """Why a handler is not found, and what to do about it, in one sentence."""
    name = f"{workflow}.{handler}"
    if kind and find(workflow, handler):
        other = Kind.COMPENSATION if kind == Kind.STEP else Kind.STEP
        return f"handler '{handler}' is registered with @{other}; register it with @{kind}(\"{name}\")"
    decorator = f'@{kind or Kind.STEP}("{name}")'
    return (
        f"handler '{handler}' is not registered, neither as '{name}' nor as '{handler}'; decorate a function with "
        f"{decorator} in a module that the package's __init__.py imports"
    )


def names(kind: Kind | None = None) -> list[str]:
    """All registered names, sorted."""
    return sorted({name for table in ([_handlers[kind]] if kind else _handlers.values()) for name in table})


def load_packages(packages: Iterable[str]) -> list[ModuleType]:
    """Imports workflow packages, which registers their handlers.

    Raises:
        PackageError: when one cannot be imported; it names the package and says what the import said, and where.
    """
    return [_load(package) for package in packages]


def _load(package: str) -> ModuleType:
    try:
        return importlib.import_module(package)
    except Exception as error:  # a package may raise anything while it is imported
        if isinstance(error, ModuleNotFoundError) and error.name and f"{package}.".startswith(f"{error.name}."):
            hint = "check its spelling, and that its parent folder is on PYTHONPATH"
            raise PackageError(f"there is no workflow package '{package}' ({error}); {hint}") from error
        if isinstance(error, (ValueError, TypeError)) and not package.strip("."):
            raise PackageError(f"{package!r} is no name of a package") from error
        raise PackageError(
            f"workflow package '{package}' cannot be imported: {type(error).__name__}: {error}{_where(error)}"
        ) from error


def _where(error: BaseException) -> str:
    """File and line of the author's code that failed, as far as it is known."""
    if isinstance(error, SyntaxError):
        return ""  # its text has them already
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "importlib" not in f.filename]
    frames = [f for f in frames if Path(f.filename) != Path(__file__)]
    return f" (at {frames[-1].filename}:{frames[-1].lineno})" if frames else ""


def _decorator(kind: Kind, name: str) -> Callable[[_F], _F]:
    if not isinstance(name, str):
        raise TypeError(f'@{kind} needs a name: write @{kind}("workflow.handler")')
    if not DOTTED.fullmatch(name):
        raise ValueError(f"@{kind}: {show(name)} is not a handler's name; use {DOTTED_HINT}")

    def register(function: _F) -> _F:
        taken = _handlers[kind].get(name)
        if taken is not None and _identity(taken) != _identity(function):
            raise HandlerTaken(
                f'@{kind}("{name}") of {_spell(function)} is taken: {_spell(taken)} is registered under that name; '
                "give one of them another"
            )
        _handlers[kind][name] = function
        return function

    return register


def _identity(function: Handler) -> tuple[Any, ...]:
    """A function that is imported again under another object (a reload) is still the same function."""
    code = getattr(function, "__code__", None)
    if code is None:
        return (id(function),)
    return (function.__module__, function.__qualname__, code.co_filename, code.co_firstlineno)


def _spell(function: Handler) -> str:
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', repr(function))}"
