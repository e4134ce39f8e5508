"""The command that plays an episode with a program, for a `command` harness: in the sandbox of `ludus box`, or not."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ludus.harnesses.installing import NotInstalled, installed_folder
from ludus.harnesses.program import Program

START: Final = (
    "import sys; sys.path.insert(0, {root!r}); from ludus.harnesses.playing import main; sys.exit(main(sys.argv[1:]))"
)
"""Imports this package alone, from its folder, with a Python that has no other packages."""
_INSIDE: Final = "/opt/ludus"
_LIMITS: Final = ("--memory", "4096", "--processes", "512")
NO_BOX: Final = "--no-box"
OWN_TOOLS: Final = "--own-tools"


def harness_command(program: Program, options: Sequence[str] = ()) -> list[str]:
    """Return the command of a harness that plays with a program.

    Args:
        program: the program.
        options: `--no-box` runs it without a sandbox; `--own-tools` lets it offer its own tools besides those of the
            episode; others are options of `ludus box`, such as `--memory 8192`.

    Raises:
        NotInstalled: the program is not installed, or there is no bubblewrap for the sandbox.
        ValueError: options of a sandbox, without one.
    """
    folder = installed_folder(program)
    play = [option for option in options if option == OWN_TOOLS]
    box = [option for option in options if option not in (OWN_TOOLS, NO_BOX)]
    python = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    package = Path(__file__).resolve().parent
    if NO_BOX in options:
        if box:
            raise ValueError(f"{' '.join(box)} is an option of the sandbox, and {NO_BOX} asks for none")
        start = START.format(root=str(package.parents[1]))
        return [python, "-I", "-S", "-c", start, program.name, str(folder), *play]
    if "--provider" not in box and shutil.which("bwrap") is None:
        raise NotInstalled(
            f"bubblewrap, the sandbox of {program.title}, is not installed (the package `bubblewrap` of the system); "
            f'"{program.name} {NO_BOX}" runs without a sandbox'
        )
    inside = f"/opt/{program.name}"
    show = ["--show", f"{folder}:{inside}", "--show", f"{package}:{_INSIDE}/ludus/harnesses"]
    ignored = [word for host in program.ignored for word in ("--ignore", host)]
    ludus = [sys.executable, "-m", "ludus.cli", "box"]
    start = START.format(root=_INSIDE)
    return [
        *ludus, *_LIMITS, *ignored, *show, *box, "--", python, "-I", "-S", "-c", start, program.name, inside, *play,
    ]  # fmt: skip
