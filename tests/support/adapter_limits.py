"""Environments for limits and failures in mid-run: sums whose every `add` pays, sums whose `add` may never return,
and sums that always break."""

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
    """The same sums, but `add` never returns in every second task."""

    @tool
    async def add(self, a: int, b: int) -> str:  # type: ignore[override]
        """Add two numbers.

        Args:
            a: the first number.
            b: the second number.
        """
        if int(self.task.id.removeprefix("sum-")) % 2:
            await asyncio.Event().wait()
        return str(a + b)


class BreakingSums(Sums):
    """The same sums, but `submit` raises an exception."""

    @tool
    def submit(self, number: int) -> Result:
        """Submit the sum.

        Args:
            number: the sum.
        """
        raise RuntimeError("this environment breaks")
