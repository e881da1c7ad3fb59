"""The contents of task.toml: the fields this package uses, all others kept.

The layout is Harbor's. Fields that are not read here (owners, healthchecks, whole tables) pass
through unchanged from `parse_manifest` to `render_manifest`.
"""

import tomllib
from typing import Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveFloat,
    ValidationError,
    field_validator,
)

from t1_reward.errors import TaskFormatError, first_problem
from t1_reward.toml import dump

__all__ = ["TaskManifest", "TaskMetadata", "parse_manifest", "render_manifest"]


class _Section(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)


class _Identity(_Section):
    name: str = Field(default="", max_length=256)


class _Limit(_Section):
    timeout_sec: PositiveFloat | None = None


class _Environment(_Section):
    workdir: str = Field(default="/app", pattern=r"^/")


class TaskMetadata(_Section):
    """The `[metadata]` table, a free table under Harbor; these keys mean something here.

    Attributes:
        families: family of each subgoal.
        skills: skill of each subgoal.
        split: "train" or "heldout", or None for a task that belongs to no split.
        length: number of subgoals; 0 when unknown.
        assertions: ids of all assertions the verifier reports, in its order. Reported ids that are
            not listed do not count; listed ids that are not reported count as failed.
        assertion_count: T*, the number of assertions, for a task whose ids are not known.
    """

    families: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    split: Literal["train", "heldout"] | None = None
    length: NonNegativeInt = 0
    assertions: tuple[str, ...] = ()
    assertion_count: NonNegativeInt = 0

    @field_validator("assertions")
    @classmethod
    def _are_unique(cls, ids: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(ids)) < len(ids):
            raise ValueError("expected every id once")
        return ids


class TaskManifest(_Section):
    """The document task.toml."""

    schema_version: str = "1.2"
    task: _Identity = _Identity()
    metadata: TaskMetadata = TaskMetadata()
    agent: _Limit = _Limit()
    verifier: _Limit = _Limit()
    environment: _Environment = _Environment()


def parse_manifest(text: str, source: str) -> TaskManifest:
    """Returns the document.

    Args:
        text: contents of task.toml.
        source: the file's name, for messages.

    Raises:
        TaskFormatError: not TOML, or a field has the wrong type; the message names the field.
    """
    try:
        return TaskManifest.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise TaskFormatError(f"{source}: not valid TOML: {error}") from error
    except ValidationError as error:
        problem = first_problem(error, "the document")
        raise TaskFormatError(f"{source}: field {problem}") from error


def render_manifest(manifest: TaskManifest) -> str:
    """Returns the document as TOML text, without fields that nobody set."""
    return dump(manifest.model_dump(exclude_unset=True, exclude_none=True))
