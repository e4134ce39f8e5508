"""The entry point of the command: the options of `ludus` itself, and the conversion of errors to messages and codes."""

from __future__ import annotations

import logging
import os
import sys
from enum import IntEnum
from typing import Annotated

import typer

from ludus.cli._lazy import LazyGroup, MissingPackage, advice, importer

__all__ = ["ExitCode"]


class ExitCode(IntEnum):
    """The exit codes of `ludus`."""

    OK = 0
    UNSUCCESSFUL = 1
    """The command ran, but a check failed or not everything it tried succeeded."""
    USAGE = 2
    """Wrong arguments."""
    REFUSED = 3
    """The server refused the request: an unknown name, a missing scope, or invalid parameters."""
    UNREACHABLE = 4
    """There is no connection or no answer in time, or the server is full or stopping."""
    FAILED = 5
    """The environment, the server, a model endpoint or a file (a full disk, a missing permission) failed."""
    MISSING = 6
    """A package is not installed; the message says which."""
    BUG = 70
    """An unexpected error."""
    INTERRUPTED = 130
    """Ctrl-C."""


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        from ludus.common.distribution import installed_version

        typer.echo(f"ludus {installed_version()}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Publish a reinforcement-learning environment once: any agent plays it, any trainer learns from it."""


class _RecordFormatter(logging.Formatter):
    """A formatter of records for a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the message and the traceback, with control characters as escapes."""
        from ludus.protocol.text import escape_record  # here, because `ludus --help` must not import pydantic

        return escape_record(super().format(record))


def main() -> None:
    """Run the command line and exit with an `ExitCode`."""
    if logging.lastResort is not None:  # what commands without a log of their own write to the terminal
        logging.lastResort.setFormatter(_RecordFormatter())
    try:
        typer.main.get_command(app)(prog_name="ludus")
    except BrokenPipeError:
        # The reader of the output has closed the pipe (`ludus tasks … | head`). Without this, Python would raise again
        # when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(ExitCode.OK)
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)
    except Exception as error:
        if os.environ.get("LUDUS_DEBUG"):
            raise
        from ludus.protocol.text import printable  # here, because `ludus --help` must not import pydantic

        code, message = explain(error)
        print(f"ludus: {printable(message)}", file=sys.stderr)  # noqa: T201
        for line in traceback_of(error):
            print(f"  {printable(line)}", file=sys.stderr)  # noqa: T201
        sys.exit(code)


def explain(error: BaseException) -> tuple[ExitCode, str]:
    """Return the exit code and the one-line message for an error that ended a command."""
    from ludus.protocol import errors as e

    if isinstance(error, MissingPackage):
        return ExitCode.MISSING, str(error)
    if isinstance(error, ModuleNotFoundError):
        return ExitCode.MISSING, advice(importer(error), error)
    if isinstance(error, BaseExceptionGroup) and error.exceptions:
        return explain(error.exceptions[0])
    if isinstance(error, OSError) and error.strerror and not isinstance(error, ConnectionError | TimeoutError):
        return ExitCode.FAILED, f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if not isinstance(error, e.LudusError):
        kind = type(error).__name__
        return ExitCode.BUG, f"{kind}: {error} (unexpected; LUDUS_DEBUG=1 shows where, please report it)"
    code = ExitCode.FAILED
    if isinstance(error, e.AuthoringError) and error.data.get("exit_code"):  # of the server that the command started
        known = error.data["exit_code"] in list(ExitCode)
        return ExitCode(error.data["exit_code"]) if known else ExitCode.FAILED, " ".join(error.message.split())
    if isinstance(error, e.RequestError | e.AuthoringError):
        code = ExitCode.REFUSED
    elif isinstance(error, e.TransportError | e.CapacityError | e.ShuttingDown):
        code = ExitCode.UNREACHABLE
    return code, " ".join(error.message.split()) + _hint(error)


def traceback_of(error: BaseException) -> list[str]:
    """Return the lines of the traceback in the environment's code, if the error has one."""
    lines = getattr(error, "data", {}).get("traceback", ())
    return [str(line) for line in lines]


def _hint(error: Exception) -> str:
    from ludus.protocol import errors as e

    if isinstance(error, e.Unauthenticated) and "endpoint" in error.data:
        return " (give the model's key with --api-key or OPENAI_API_KEY)"
    if isinstance(error, e.Unauthenticated) and "hub" in error.data:
        return ""  # the hub's own message names the option
    if isinstance(error, e.Unauthenticated):
        return " (give a token with --token or LUDUS_TOKEN)"
    if isinstance(error, e.LudusError) and error.incident:
        return f" (incident {error.incident} in the server's log)"
    if isinstance(error, e.CapacityError) and error.retry_after is not None:
        return f" (try again in {error.retry_after:g} s)"
    return ""
