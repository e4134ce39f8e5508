"""Tasks: the author's own pydantic models, whose private fields no serializer will ever write."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

T = TypeVar("T")


class _PrivateMark:
    """Found in a field's metadata when the author wrote `Private[...]`."""

    def __repr__(self) -> str:
        return "Private"


PRIVATE: Final = _PrivateMark()

Private = Annotated[T, Field(exclude=True, repr=False), PRIVATE]
"""A task field that never leaves the server: `answer: Private[int]`.

pydantic leaves it out of every dump, JSON text and repr, at any depth; only the author's own code reads it.
"""


class Task(BaseModel):
    """One problem. Subclass it with the fields the agent may see and, as `Private[...]`, those it may not."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)

    id: str = Field(min_length=1, max_length=200)
    """Unique within its split."""

    def public(self) -> dict[str, Any]:
        """The fields that may be shown, JSON-ready, without the id."""
        return self.model_dump(mode="json", exclude={"id"})

    @classmethod
    def private_fields(cls) -> frozenset[str]:
        """The names of the fields declared `Private[...]`."""
        return frozenset(name for name, field in cls.model_fields.items() if _is_private(field))


def _is_private(field: FieldInfo) -> bool:
    return any(mark is PRIVATE for mark in field.metadata)
