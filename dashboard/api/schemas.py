"""Bodies that the API takes, unknown fields refused and nothing coerced."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Subject = Annotated[str, StringConstraints(min_length=1, max_length=500)]
Reason = Annotated[str, StringConstraints(max_length=2000)]
Duration = (
    Annotated[str, Field(description="A whole number and s, m, h or d.", examples=["90s", "2h"], max_length=20)]
    | Annotated[float, Field(description="Seconds.", allow_inf_nan=False)]
)
Version = Annotated[int, Field(ge=1, le=2**31 - 1)]
Labels = dict[
    Annotated[str, StringConstraints(min_length=1, max_length=100)], Annotated[str, StringConstraints(max_length=500)]
]


class Body(BaseModel):
    """Base of every body."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Submit(Body):
    """A run to start."""

    workflow: Name
    subject_id: Subject
    input: dict[str, Any] | None = Field(None, description="What the handlers get as ctx.input.")
    version: Version | None = Field(None, description="Default: the newest published.")
    idempotency_key: Annotated[str, StringConstraints(min_length=1, max_length=500)] | None = Field(
        None, description="Unique per workflow: a repeat answers the same run, with 200."
    )
    deadline: Duration | None = Field(None, description="For the whole run. Default: the definition's.")
    delay: Duration | None = Field(None, description="Start no sooner than this from now.")
    after: list[str] | None = Field(None, description="Ids of runs that must have ended first.", max_length=1000)
    parent: Annotated[str, StringConstraints(min_length=1, max_length=50)] | None = Field(
        None, description="Id of the run that it is a part of. That one does not wait for it and does not stop it."
    )
    lock: Subject | None = Field(None, description="Held by each step that names no lock of its own, while it runs.")
    on_lock_conflict: Literal["requeue", "reject", "dead_letter"] | None = Field(
        None, description="What its steps do whose lock is held. Default: the step's policy, else the fleet's."
    )
    labels: Labels | None = Field(None, max_length=50)


class SubmitMany(Body):
    """Runs to start together: all of them or, if one is refused, none. A list alone is taken for ``runs``."""

    runs: list[Submit] = Field(min_length=1, max_length=1000)

    @model_validator(mode="before")
    @classmethod
    def _bare_list(cls, value: Any) -> Any:
        return {"runs": value} if isinstance(value, list) else value


class Cancel(Body):
    """Why a run is cancelled."""

    reason: Reason
    force: bool = Field(False, description="Kill running handlers at once.")


class Retry(Body):
    """Why and from where a run goes on."""

    reason: Reason = ""
    from_step: Name | None = Field(None, description='This step and all behind it are executed again; "*": all.')
    dry_run: bool = Field(False, description="Change nothing, answer what would be executed again.")


class Why(Body):
    """A reason, kept in the audit trail."""

    reason: Reason


class Extend(Body):
    """More time for a run."""

    deadline: Annotated[str, StringConstraints(min_length=1, max_length=50)] = Field(
        description="A duration from now such as `2h`, or a time in ISO 8601."
    )
    reason: Reason


class Hold(Body):
    """More time before a held run undoes."""

    until: Annotated[str, StringConstraints(min_length=1, max_length=50)] = Field(
        description="A duration from now such as `2h`, or a time in ISO 8601."
    )
    reason: Reason


class Note(Body):
    """A note, kept in the run's history. `reason` or `text` are taken for `note`."""

    note: Reason

    @model_validator(mode="before")
    @classmethod
    def _other_name(cls, value: Any) -> Any:
        if isinstance(value, dict) and len(value) == 1 and not value.keys().isdisjoint(("reason", "text")):
            return {"note": next(iter(value.values()))}
        return value


class TopicLimit(Body):
    """A cluster-wide limit."""

    limit: Annotated[int, Field(ge=0, le=2**31 - 1)] | Literal["default"] | None = Field(
        description="0 pauses; null is unlimited; default: back to what the settings or the definition say."
    )
    reason: Reason = ""
