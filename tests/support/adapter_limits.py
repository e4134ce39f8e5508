"""Environments for limits and failures in mid-run: sums whose every `add` pays, and sums whose `add` never returns."""

from __future__ import annotations

import asyncio

from adapter_world import Sums

from ludus.server import Result, tool


class PayingSums(Sums):
    """The same sums, and each `add` pays 0.25."""

    @tool
    def add(self, a: int, b: int) -> Result:  # type: ignore[override]
        """Add two numbers.

        Args:
            a: the first number.
            b: the second number.
        """
        return Result(str(a + b), reward=0.25)


class HangingSums(Sums):
    """The same sums, but `add` never returns."""

    @tool
    async def add(self, a: int, b: int) -> str:  # type: ignore[override]
        """Add two numbers.

        Args:
            a: the first number.
            b: the second number.
        """
        await asyncio.Event().wait()
        return str(a + b)
