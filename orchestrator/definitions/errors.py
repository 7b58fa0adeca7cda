"""What can be wrong with a definition, a workflow package or a handler's name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.core.errors import Invalid, NotFound, SwitchyardError

#: A file with hundreds of mistakes is told the first ones; the rest would be noise.
MAX_PROBLEMS = 50


@dataclass(frozen=True, order=True)
class Problem:
    """One mistake: ``file:line: reason``. ``line`` counts from 1; 0 where no line is to blame."""

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}" if self.line else f"{self.file}: {self.reason}"


class DefinitionError(Invalid):
    """One or more definitions cannot be accepted. Nothing was stored."""

    code = "invalid_definition"

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class PackageError(Invalid):
    """A workflow package cannot be imported, or is not one. The message has the import's own error."""

    code = "invalid_package"


class HandlerMissing(NotFound):
    """No code that is loaded here registers this handler."""

    code = "handler_missing"


class HandlerTaken(SwitchyardError):
    """Another function is already registered under this name."""

    code = "handler_taken"


class Problems:
    """Collects the mistakes of one file, so that a person sees them all at once."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.found: list[Problem] = []

    def add(self, line: int, reason: str) -> None:
        """Note a mistake.

        Raises:
            DefinitionError: when there are as many as anybody would read.
        """
        self.found.append(Problem(self.file, line, reason))
        if len(self.found) >= MAX_PROBLEMS:
            self.found.append(Problem(self.file, line, f"and perhaps more: only the first {MAX_PROBLEMS} are listed"))
            self.raise_if_any()

    def stop(self, line: int, reason: str) -> DefinitionError:
        """The error for a mistake after which nothing more can be read."""
        return DefinitionError([*self.found, Problem(self.file, line, reason)])

    def raise_if_any(self) -> None:
        """Raises: DefinitionError: when anything was noted, in the order of the lines."""
        if self.found:
            raise DefinitionError(sorted(self.found, key=lambda problem: problem.line))
