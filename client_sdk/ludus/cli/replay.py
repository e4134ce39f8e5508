"""`ludus replay`: execute a recorded episode again, and show where it departs from its journal."""

from __future__ import annotations

import contextlib
import logging
import sys
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ludus.cli import _replayed_text as text
from ludus.cli.common import Json, console, errors, print_json, run, shown
from ludus.protocol.errors import EnvironmentNotFound, LudusError, Unsupported
from ludus.protocol.text import shorten_traceback

if TYPE_CHECKING:  # imported where needed, so that a missing extra `server` gives the command that installs it
    from ludus.server.recovery.recorded import Recorded
    from ludus.server.recovery.reexecution import Reexecution

COMMANDS: Final = {"replay": "Execute a recorded episode again, and show where it departs from its journal."}

LISTED: Final = 50
"""How many episodes are listed by default."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("replay", help=COMMANDS["replay"])(replay)


def replay(
    journal: Annotated[str, typer.Argument(metavar="JOURNAL", help="What `ludus serve --journal` was given.")],
    episode: Annotated[
        str | None,
        typer.Argument(metavar="EPISODE", help="The episode's id, or how it begins; without it, all are listed."),
    ] = None,
    env: Annotated[
        str | None,
        typer.Option("--env", help="The environment: NAME, module:Class or file.py:Class; by default, by its name."),
    ] = None,
    no_run: Annotated[bool, typer.Option("--no-run", help="Show what was recorded, and execute nothing.")] = False,
    step: Annotated[int | None, typer.Option("--step", min=0, help="Stop after this call.")] = None,
    interactive: Annotated[
        bool, typer.Option("--interactive", "-i", help="Go forward and back, look at the state, try calls.")
    ] = False,
    environment: Annotated[
        str | None, typer.Option("--environment", help="List only episodes of this one; * stands for any characters.")
    ] = None,
    task: Annotated[
        str | None, typer.Option("--task", help="List only episodes of this task; * stands for any characters.")
    ] = None,
    end: Annotated[
        str | None, typer.Option("--end", help="List only episodes with this end, such as submitted; or running.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="The most episodes to list, latest first.")] = LISTED,
    full: Annotated[bool, typer.Option("--full", help="Show long values in full.")] = False,
    as_json: Json = False,
) -> None:
    """Execute a recorded episode again in this process, and show where it departs from what was recorded.

    [bold]ludus replay episodes.db[/bold]
    [bold]ludus replay episodes.db e_Xk2 --env my_env.py:Sums[/bold]
    [bold]ludus replay episodes.db e_Xk2 --env my_env.py:Sums --interactive[/bold]

    The journal is never changed; a server may be using it. Exits with 0 when everything is as it was
    recorded, 1 when something departs.
    """
    if episode is None and (interactive or no_run or step is not None or env is not None):
        raise typer.BadParameter("--interactive, --no-run, --step and --env need an EPISODE")
    if interactive and (as_json or no_run):
        raise typer.BadParameter("--interactive cannot be combined with --json or --no-run")
    episodes = _read(journal)
    if episode is None:
        _list(episodes, environment or "*", task or "*", end, limit, as_json=as_json)
        return
    chosen = _find(episodes, episode)
    if no_run:
        _show(chosen, step, full=full, as_json=as_json)
        return
    logger = logging.getLogger("ludus")
    logger.addHandler(_Failures())
    logger.propagate = False
    same = _debug(chosen, env, step, full=full) if interactive else _execute(chosen, env, step, full, as_json)
    if not same:
        raise typer.Exit(1)


def _read(journal: str) -> list[Recorded]:
    from ludus.server.durability.journal import JournalUnusable
    from ludus.server.recovery.recorded import read_recorded

    try:
        return read_recorded(journal)
    except JournalUnusable as error:
        raise typer.BadParameter(error.message) from None


def _find(episodes: list[Recorded], name: str) -> Recorded:
    from ludus.server.recovery.recorded import find_recorded

    try:
        return find_recorded(episodes, name)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _list(episodes: list[Recorded], environment: str, task: str, end: str | None, limit: int, *, as_json: bool) -> None:
    matching = [
        episode
        for episode in reversed(episodes)
        if fnmatchcase(episode.history.started.environment, environment)
        and fnmatchcase(episode.history.started.task, task)
        and end in (None, episode.end)
    ]
    if as_json:
        print_json([text.list_item(one) for one in matching[:limit]])
    elif matching:
        text.print_list(matching[:limit], len(matching))
    else:
        errors.print(shown(f"none of the {len(episodes)} episodes of the journal matches"))


def _show(chosen: Recorded, step: int | None, *, full: bool, as_json: bool) -> None:
    calls = chosen.history.calls()[:step]
    if as_json:
        print_json({**text.list_item(chosen), "calls": [text.call_item(call) for call in calls]})
        return
    text.print_head(chosen)
    text.print_prompt(chosen.history.started.prompt, full=full)
    for call in calls:
        text.print_call(call, full=full)
        text.print_outcome(call.outcome, full=full)


def open_reexecution(chosen: Recorded, env: str | None) -> Reexecution:
    """Return the re-execution of an episode.

    Raises:
        BadParameter: the environment is not found, or the episode cannot be executed again.
        AuthoringError: the environment cannot be loaded.
    """
    from ludus.server.recovery.reexecution import Reexecution
    from ludus.server.tasks.loading import load_environment
    from ludus.validation.core.local_environments import installed_class

    name = chosen.history.started.environment
    try:
        return Reexecution(installed_class(name) if env is None else load_environment(env), chosen.history)
    except EnvironmentNotFound as error:
        missing = f"no environment {name!r} is installed; name its class with --env module:Class or file.py:Class"
        raise typer.BadParameter(error.message if env is not None else missing) from None
    except Unsupported as error:
        raise typer.BadParameter(f"episode {chosen.id}: {error.message}; --no-run shows what was recorded") from None


class _Failures(logging.Handler):
    """Prints what the environment's code raised, with the lines of its own traceback."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record."""
        errors.print(shown(record.getMessage(), "yellow"), soft_wrap=True)
        if record.exc_info:
            for line in shorten_traceback(logging.Formatter().formatException(record.exc_info)):
                errors.print(shown(f"  {line}", "dim"), soft_wrap=True)


def remarks(again: Reexecution) -> list[str]:
    """Return what one should know about a re-execution before it begins."""
    started, published = again.history.started, again.published
    found = []
    if started.environment != published.name:
        found.append(f"recorded with the environment {started.environment!r}, executed with {published.name!r}")
    if again.version_differs:
        found.append(f"recorded with version {started.version}, executed with version {published.cls.version}")
    if published.cls.durable == "snapshot":
        found.append('the environment has durable = "snapshot": repeated calls need not give the same')
    return found


def _execute(chosen: Recorded, env: str | None, step: int | None, full: bool, as_json: bool) -> bool:
    """Execute an episode again and print it; return whether everything was as it was recorded."""
    again = open_reexecution(chosen, env)
    for line in remarks(again):
        errors.print(shown(f"note: {line}", "yellow"), soft_wrap=True)
    result: dict[str, Any] = {**text.list_item(chosen), "calls": []}
    quiet = contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()
    with quiet:  # the environment's code may print
        departed = run(_execute_all(again, chosen, step, full, result if as_json else None))
    if as_json:
        print_json({**result, "same": not departed, "departed_at": departed[0] if departed else None})
    elif departed:
        rest = f", and {len(departed) - 1} more later" if len(departed) > 1 else ""
        console.print(shown(f"\n✗ departs at {departed[0]}{rest}", "bold red"))
    else:
        console.print(shown(f"\n✓ the same as recorded, {again.place} calls", "green"))
    return not departed


async def _execute_all(
    again: Reexecution, chosen: Recorded, step: int | None, full: bool, result: dict[str, Any] | None
) -> list[str]:
    """Execute the calls, print them or add them to a result, and return where the episode departs."""
    departed: list[str] = []
    async with again:
        if result is None:
            text.print_head(chosen)
        try:
            departures = await again.begin()
        except LudusError as error:
            if result is None:
                console.print(shown(f"  ✗ it cannot be set up: {error.message}", "bold red"), soft_wrap=True)
            else:
                result["failure"] = error.message
            return ["its start"]
        if departures:
            departed.append("the prompt")
        if result is not None:
            result["departures"] = [text.departure_item(departure) for departure in departures]
        else:
            text.print_prompt(chosen.history.started.prompt, full=full)
            for departure in departures:
                text.print_departure(departure, full=full)
        while again.place < len(again.calls) and (step is None or again.place < step):
            repeated = await again.advance()
            if repeated.departures:
                past = repeated.past
                departed.append("the final message" if past.tool is None else f"step {past.number}")
            if result is not None:
                result["calls"].append(text.repeated_item(repeated))
            else:
                text.print_repeated(repeated, full=full)
    return departed


def _debug(chosen: Recorded, env: str | None, step: int | None, *, full: bool) -> bool:
    from ludus.cli._time_travel import TimeTravel

    again = open_reexecution(chosen, env)
    for line in remarks(again):
        errors.print(shown(f"note: {line}", "yellow"), soft_wrap=True)
    text.print_head(chosen)
    return TimeTravel.debug(again, step or 0, full=full)
