"""The tool `bash` of a workspace: which commands it takes, how it runs them, and how it shows what they print."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from ludus.sandbox import RunResult, Sandbox, SandboxFileError
from ludus.server.execution.errors import ToolError

HOME: Final = "/box"
LONGEST_COMMAND: Final = 20_000
LONGEST_OUTPUT: Final = 8_000

VARIABLES: Final[Mapping[str, str]] = {
    "TZ": "UTC", "LC_ALL": "C.UTF-8", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_EDITOR": "true", "EDITOR": "true",
    "PYTHONDONTWRITEBYTECODE": "1", "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0",
    "GIT_AUTHOR_NAME": "Robin Hale", "GIT_AUTHOR_EMAIL": "robin@example.com", "GIT_COMMITTER_NAME": "Robin Hale",
    "GIT_COMMITTER_EMAIL": "robin@example.com", "GIT_AUTHOR_DATE": "2025-01-15T12:00:00Z",
    "GIT_COMMITTER_DATE": "2025-01-15T12:00:00Z", "GIT_MERGE_AUTOEDIT": "no",
}  # fmt: skip
"""The environment variables of all commands. The dates make the hashes of new commits depend on nothing else."""

_SHELL: Final = 'exec bash -c "$1" 2>&1'
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


async def run_command(box: Sandbox, folder: str, command: str) -> str:
    """Run a command line in a folder of the workspace, or above it if it is gone, and return what a policy sees.

    Args:
        box: the sandbox.
        folder: the folder, relative to the work directory.
        command: the command line, from the policy.

    Raises:
        ToolError: the command line is empty, too long, or no text that a shell can get.
        SandboxFailed: the machine lost the sandbox.
    """
    argv = ["sh", "-c", _SHELL, "sh", checked_command(command)]
    try:
        result = await box.run(argv, cwd=folder, env=VARIABLES)
    except SandboxFileError:
        result = await box.run(argv, env=VARIABLES)
        return f"(The folder {folder} is gone; this ran in {HOME}.)\n{shown_result(result)}"
    return shown_result(result)


def checked_command(command: str) -> str:
    """Return the command line.

    Raises:
        ToolError: it is empty, too long, or no text that a shell can get.
    """
    if not command.strip():
        raise ToolError("The command is empty. Give a command line, such as: ls -la")
    if len(command) > LONGEST_COMMAND:
        raise ToolError(f"The command has {len(command):,} characters, more than {LONGEST_COMMAND:,}. Split it up.")
    if "\0" in command:
        raise ToolError("The command has a NUL character, which a command line cannot have. Use printf '\\0' instead.")
    try:
        command.encode()
    except UnicodeEncodeError:
        raise ToolError(
            "The command has a lone surrogate, which is no character. Use printf with octal codes."
        ) from None
    return command


def shown_result(result: RunResult) -> str:
    """Return a result as an observation: its output, shortened and without control characters, and how it ended."""
    output = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", result.text.replace("\r\n", "\n").replace("\x1b", "\\e"))
    if len(output) > LONGEST_OUTPUT:
        half = LONGEST_OUTPUT // 2
        output = f"{output[:half]}\n({len(output) - 2 * half:,} characters left out)\n{output[-half:]}"
    if output and not output.endswith("\n"):
        output += "\n"
    if result.limit is not None:
        ending = f"(ended: the command exceeded its limit on {result.limit})"
    elif result.signal is not None:
        ending = f"(ended by signal {result.signal})"
    else:
        ending = f"(exit code {result.exit_code})"
    if result.rebuilt:
        ending += " (the sandbox was started again; files may be lost)"
    return output + ending
