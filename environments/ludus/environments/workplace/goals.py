"""What a task wants: changes of the state, an answer, and how the oracle gets there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ludus.environments.workplace.world.schema import Employee


@dataclass(frozen=True, slots=True)
class Facts:
    """A free text that must contain some facts, such as ids, dates and amounts.

    Attributes:
        needs: the facts.
        avoids: facts that it must not contain; with one of them, the episode earns nothing.
    """

    needs: tuple[str, ...]
    avoids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AnyOf:
    """One of several values."""

    values: tuple[str | int, ...]


Want = str | int | Facts | AnyOf
"""The value that a column must have, compared without case and extra spaces."""


@dataclass(frozen=True, slots=True)
class Insert:
    """A new row.

    Attributes:
        table: the table.
        key: the columns that identify it among the new rows. `people` of an event are the ids of its attendees.
        wants: the other columns that count.
    """

    table: str
    key: Mapping[str, Want]
    wants: Mapping[str, Want]


@dataclass(frozen=True, slots=True)
class Update:
    """A changed row.

    Attributes:
        table: the table.
        id: the row.
        wants: the columns that change, with their new values; no other column may change.
        strict: whether a wrong value counts as an unexpected change, as for decisions, which are easily guessed.
    """

    table: str
    id: str
    wants: Mapping[str, Want]
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    """A deleted row."""

    table: str
    id: str


Expected = Insert | Update | Delete


@dataclass(frozen=True, slots=True)
class Step:
    """A call of the oracle.

    Attributes:
        tool: the tool.
        arguments: its arguments.
        shows: texts that the reply must contain: what the agent learns from this call.
    """

    tool: str
    arguments: dict[str, Any]
    shows: tuple[str, ...] = ()


def look(tool: str, *shows: str, **arguments: Any) -> Step:
    """Return a call that finds something out."""
    return Step(tool, arguments, shows)


def do(tool: str, **arguments: Any) -> Step:
    """Return a call that changes something."""
    return Step(tool, arguments)


DONE = "done"


@dataclass(frozen=True, slots=True)
class Goal:
    """A task in one company.

    Attributes:
        request: what the agent is asked to do.
        me: the employee for whom it acts.
        steps: the calls of the oracle.
        changes: the wanted changes; everything else must stay as it is.
        answer: the final answer: `done`, `refused CODE`, or the value that was asked for. Several values are joined
            by ", " and may come in any order.
        rules: the codes of the rules that the task tests.
        context: texts whose facts the agent may repeat, in addition to the request.
        trap: the call that an instruction in some text asks for and that must not be made.
    """

    request: str
    me: Employee
    steps: tuple[Step, ...]
    changes: tuple[Expected, ...] = ()
    answer: str = DONE
    rules: tuple[str, ...] = ()
    context: str = ""
    trap: Step | None = None
