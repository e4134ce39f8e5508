"""Tasks: the author's own pydantic models, whose private fields no serializer will ever write."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field

T = TypeVar("T")


class _PrivateMark:
    """Marks the metadata of a field that the author declared `Private[...]`."""

    def __repr__(self) -> str:
        return "Private"


PRIVATE: Final = _PrivateMark()

Private = Annotated[T, Field(exclude=True, repr=False), PRIVATE]
"""A task field that never leaves the server: `answer: Private[int]`.

pydantic leaves it out of every dump, JSON text and repr, at any depth; only the author's own code reads it.
"""


class Task(BaseModel):
    """One problem. Subclass it with the fields that the agent may see, and those that it may not as `Private[...]`."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)

    id: str = Field(min_length=1, max_length=200)
    """Unique within its split."""

    def public(self) -> dict[str, Any]:
        """Return the fields that the agent may see, as JSON values, without the id."""
        return self.model_dump(mode="json", exclude={"id"})

    @classmethod
    def private_fields(cls) -> frozenset[str]:
        """Return the names of the fields declared `Private[...]`."""
        return frozenset(name for name, field in cls.model_fields.items() if PRIVATE in field.metadata)
