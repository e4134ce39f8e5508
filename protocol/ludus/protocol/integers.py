"""Integers on the wire, which every reader must hold exactly."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

__all__ = ["LARGEST_INTEGER", "Ordinal", "Whole"]


LARGEST_INTEGER: Final = 2**53 - 1
"""The greatest integer on the wire. Readers that hold numbers as doubles (JavaScript, jq, Lua) change greater ones; see
RFC 8259, section 6."""

Integer = Annotated[int, Field(ge=-LARGEST_INTEGER, le=LARGEST_INTEGER)]
"""An integer of either sign."""

Whole = Annotated[int, Field(ge=0, le=LARGEST_INTEGER)]
"""An integer from 0."""

Ordinal = Annotated[int, Field(ge=1, le=LARGEST_INTEGER)]
"""An integer from 1."""
