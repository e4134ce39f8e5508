"""Agent programs of others as harnesses: `rollouts.harness = "claude-code"`.

    program.py      what is known of a program, and of one episode that it plays
    programs/       one module for each program
    registry.py     the programs by name
    peers/          programs on the packages of others, in their own virtual environments
    installing.py   installs a program into a folder of its own, with the pins in pins/
    commands.py     the command of `rollouts.harness` that plays an episode with a program, in a sandbox or without one
    bridge.py       the episode's tools as a shell command, for programs without a client for MCP
    playing.py      what that command runs: write the configuration, run the program, read its end

Only the standard library, and no other package of Ludus: playing.py and what it imports run inside the sandbox too.
"""

from ludus.harnesses.commands import harness_command
from ludus.harnesses.installing import InstallError, NotInstalled, fingerprint, install, installed_folder
from ludus.harnesses.program import Program
from ludus.harnesses.registry import NAMES, find_program

__all__ = [
    "NAMES",
    "InstallError",
    "NotInstalled",
    "Program",
    "find_program",
    "fingerprint",
    "harness_command",
    "install",
    "installed_folder",
]
