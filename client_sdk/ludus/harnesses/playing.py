"""Play one episode with a program: `python START NAME FOLDER [--own-tools]`, with the JSON object on the input.

It writes the program's configuration into a home folder of this episode, runs the program, and ends with 0 if the
agent has stopped, for whatever reason, or with another code if the program broke; the last line says how.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from ludus.harnesses.bridge import COMMAND, script
from ludus.harnesses.program import QUIET, Finished, Launch, Setting, Task
from ludus.harnesses.registry import find_program

TAIL = 4_000
"""How many characters of a program's output are passed on."""


def main(arguments: list[str]) -> int:
    """Play the episode, and return the exit code."""
    name, folder, *options = arguments
    program = find_program(name)
    try:
        task = Task.read(sys.stdin.readline())
    except (ValueError, KeyError, TypeError):
        sys.stderr.write("it needs one line of JSON on its input, which `ludus train` gives a harness\n")
        return os.EX_USAGE
    with tempfile.TemporaryDirectory(prefix="agent-", ignore_cleanup_errors=True) as temporary:
        home = Path(os.environ.get("HOME") or temporary)
        setting = Setting(Path(folder), home, home / "workspace", own_tools="--own-tools" in options)
        if program.bridge:
            write_tool(setting, task)
        finished = run(program.launch(task, setting), setting)
    end = program.end(finished)
    sys.stderr.write(f"{finished.output[-TAIL:]}\n{finished.errors[-TAIL:]}\n")
    if end.code:
        sys.stderr.write(f"{program.title} {program.version}: {end.message}\n")
    return end.code


def write_tool(setting: Setting, task: Task) -> None:
    """Write the command that calls the episode's tools."""
    path = setting.home / "bin" / COMMAND
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script(sys.executable, str(Path(__file__).resolve().parents[2]), task.play_url), encoding="utf-8")
    path.chmod(0o755)


def run(launch: Launch, setting: Setting) -> Finished:
    """Write the files of a launch, run the program, and return its end."""
    setting.workspace.mkdir(parents=True, exist_ok=True)
    for name, text in launch.files.items():
        path = setting.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    programs = f"{setting.home / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    variables = {**os.environ, **QUIET, "PATH": programs, "PWD": str(setting.workspace)}
    done = subprocess.run(
        launch.arguments,
        input=launch.input.encode(),
        capture_output=True,
        cwd=setting.workspace,
        env={**variables, **launch.variables},
        check=False,
    )
    return Finished(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))
