"""From YAML files to published versions: all of them, or none and every reason why not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Literal

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Max

from orchestrator.core.actor import Actor
from orchestrator.core.cron import next_tick
from orchestrator.definitions.errors import DefinitionError, PackageError, Problem
from orchestrator.definitions.parse import Loaded, load
from orchestrator.definitions.parse_parts import Defaults
from orchestrator.definitions.registry import find as find_handler
from orchestrator.definitions.registry import load_packages, missing
from orchestrator.models import AuditRecord, Definition, Schedule

#: Any number will do, as long as every publisher takes the same.
_LOCK = 0x5377_7075_626C
COMMAND_LINE = Actor("command line", "admin")


@dataclass(frozen=True)
class PublishResult:
    """What became of one definition. With ``check`` nothing is stored, and ``new`` means "would be"."""

    workflow: str
    version: int
    status: Literal["new", "unchanged"]
    file: str


@dataclass(frozen=True)
class _Found:
    loaded: Loaded
    package: str
    origin: str


def find(package: str) -> list[Path]:
    """The YAML files in a package's own folder (not in folders below it), sorted. Imports the package.

    Raises:
        PackageError: when it cannot be imported, is not a package or holds no definition.
    """
    (module,) = load_packages([package])
    folders = _folders(package, module)
    files = sorted(
        path
        for folder in folders
        for path in folder.iterdir()
        if path.suffix in (".yaml", ".yml") and not path.name.startswith(".") and path.is_file()
    )
    if not files:
        raise PackageError(f"workflow package '{package}' holds no *.yaml definition; looked in {_list(folders)}")
    return files


def check(packages: Iterable[str]) -> list[PublishResult]:
    """What :func:`publish` would do, storing nothing.

    Raises:
        DefinitionError, PackageError: as :func:`publish`.
    """
    found = _load_all(packages)
    return [_result(one, stored) for one, stored in zip(found, _stored(found), strict=True)]


def publish(packages: Iterable[str], *, actor: Actor = COMMAND_LINE) -> list[PublishResult]:
    """Publishes every definition of these workflow packages in one transaction.

    A version that is published already must have the same content. Publishers wait for each other.

    Raises:
        PackageError: a package cannot be imported or holds no definition.
        DefinitionError: one definition or more cannot be accepted; it has every problem. Nothing was stored.
    """
    found = _load_all(packages)
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        results = []
        for one, stored in zip(found, _stored(found), strict=True):
            results.append(_result(one, stored))
            if stored is None:
                _store(one, actor)
            elif (stored.package, stored.origin) != (one.package, one.origin):
                # The same content, moved: the code that runs it is imported from where it stands now.
                Definition.objects.filter(pk=stored.pk).update(package=one.package, origin=one.origin)
        for workflow in sorted({result.workflow for result in results}):
            keep_schedule(workflow)
    return results


def _folders(package: str, module: ModuleType) -> list[Path]:
    paths = [Path(path) for path in getattr(module, "__path__", [])]
    folders = [path for path in paths if path.is_dir()]
    if not folders:
        raise PackageError(
            f"'{package}' is a module, not a package; a workflow package is a folder with __init__.py and *.yaml files"
        )
    return folders


def _load_all(packages: Iterable[str]) -> list[_Found]:
    defaults = Defaults(settings.ORCHESTRATOR.default_deadline, settings.ORCHESTRATOR.default_timeout)
    names = list(dict.fromkeys(packages))
    files = [(package, path) for package in names for path in find(package)]
    problems: list[Problem] = []
    found: list[_Found] = []
    for package, path in files:
        try:
            loaded = load(path, defaults, file=_display(path))
        except DefinitionError as error:
            problems.extend(error.problems)
            continue
        found.append(_Found(loaded, package, f"{package.replace('.', '/')}/{path.name}"))
        problems.extend(_missing_handlers(loaded))
    problems.extend(_repeated(found))
    # What is stored is looked at in the same go, so that one attempt tells everything there is to mend.
    for one, stored in zip(found, _stored(found), strict=True):
        problems.extend(_changed(one, stored))
    if problems:
        raise DefinitionError(problems)
    return found


def _missing_handlers(loaded: Loaded) -> list[Problem]:
    workflow = loaded.spec.workflow
    return [
        Problem(loaded.file, use.line, f"{use.where}: {missing(workflow, use.handler, use.kind)}")
        for use in loaded.handlers
        if find_handler(workflow, use.handler, use.kind) is None
    ]


def _repeated(found: list[_Found]) -> list[Problem]:
    first: dict[tuple[str, int], Loaded] = {}
    problems = []
    for one in found:
        spec = one.loaded.spec
        other = first.setdefault((spec.workflow, spec.version), one.loaded)
        if other is not one.loaded:
            reason = f"{spec.workflow} version {spec.version} is also defined in {other.file}; raise one of the numbers"
            problems.append(Problem(one.loaded.file, one.loaded.line, reason))
    return problems


def _stored(found: list[_Found]) -> list[Definition | None]:
    """For each definition the row of the same workflow and version, if there is one."""
    workflows = {one.loaded.spec.workflow for one in found}
    rows = Definition.objects.filter(workflow__in=workflows).defer("spec", "source")
    known = {(row.workflow, row.version): row for row in rows}
    return [known.get((one.loaded.spec.workflow, one.loaded.spec.version)) for one in found]


def _changed(one: _Found, stored: Definition | None) -> list[Problem]:
    if stored is None or stored.content_hash == one.loaded.content_hash:
        return []
    spec = one.loaded.spec
    top = Definition.objects.filter(workflow=spec.workflow).aggregate(top=Max("version"))["top"]
    reason = (
        f"{spec.workflow} version {spec.version} is published already with other content, and a published version "
        f"never changes; write `version: {top + 1}`"
    )
    return [Problem(one.loaded.file, one.loaded.line, reason)]


def _result(one: _Found, stored: Definition | None) -> PublishResult:
    """Raises: DefinitionError: when another publisher was first, with other content."""
    problems = _changed(one, stored)
    if problems:
        raise DefinitionError(problems)
    spec = one.loaded.spec
    return PublishResult(spec.workflow, spec.version, "new" if stored is None else "unchanged", one.loaded.file)


def _store(one: _Found, actor: Actor) -> None:
    spec = one.loaded.spec
    before = Definition.objects.filter(workflow=spec.workflow).aggregate(top=Max("version"))["top"]
    Definition.objects.create(
        workflow=spec.workflow,
        version=spec.version,
        content_hash=one.loaded.content_hash,
        spec=spec.model_dump(mode="json"),
        source=one.loaded.source,
        origin=one.origin,
        package=one.package,
    )
    AuditRecord.objects.create(
        subject=f"{spec.workflow} v{spec.version}",
        action="publish",
        actor=actor.name,
        role=actor.role,
        before={"version": before},
        after={"version": spec.version, "content_hash": one.loaded.content_hash, "origin": one.origin},
    )


def keep_schedule(workflow: str) -> None:
    """Brings the schedule's row in line with the newest version in use: made, changed or taken away.

    A pause stays, and so does the tick to come unless the times themselves have changed.
    """
    offered = Definition.objects.filter(workflow=workflow, retired_at=None).order_by("-version")
    wanted = offered.values_list("spec__schedule", flat=True).first()
    row = Schedule.objects.select_for_update().filter(workflow=workflow).first()
    if wanted is None:
        if row is not None:
            row.delete()
        return
    row = row or Schedule(workflow=workflow)
    if row.next_at is None or (row.cron, row.timezone) != (wanted["cron"], wanted["timezone"]):
        row.next_at = next_tick(wanted["cron"], wanted["timezone"], _now())
    for field, value in wanted.items():
        setattr(row, field, value)
    row.save()


def _now() -> datetime:
    """All clocks are the database's."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT now()")
        now: datetime = cursor.fetchone()[0]
    return now


def _display(path: Path) -> str:
    """A file's name as the person at the prompt would write it."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)


def _list(folders: list[Path]) -> str:
    return ", ".join(_display(folder) for folder in folders)
