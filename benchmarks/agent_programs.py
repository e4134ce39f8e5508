"""What an episode costs with each agent program of `ludus harness`: docs/harnesses.md shows it as a table.

    python benchmarks/agent_programs.py [--episodes 3] [NAME ...]

Each program plays episodes of `guess_number` behind the policy gateway, in the sandbox of `ludus box`, with a policy
that guesses at random and a tokenizer of one token a letter. The figures are medians: model calls, training samples,
seconds of CPU and of the clock, and letters of the first prompt, with the episode's tools alone and with the program's
own. CPU is that of everything that is started for the episode, the sandbox included; the trainer and the server are not
in it.
Programs come from `python scripts/peers.py harnesses/NAME`; one that is not installed keeps its row.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import os
import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from gateway_play import check_exact
from program_play import PROGRAMS, Played, guesser, play

from ludus.harnesses import NAMES, NotInstalled, Program, find_program, installed_folder
from ludus.rendering import Renderer
from ludus.trainer import quickstart
from ludus.trainer.core.tiny import make_tokenizer

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "assets" / "agent_programs.json"
ENVIRONMENT = "guess_number"


def main() -> int:
    """Measure, print and write the rows; the exit code is 1 if one could not be measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", metavar="NAME", help="all by default")
    parser.add_argument("--episodes", type=int, default=3)
    options = parser.parse_args()
    if unknown := set(options.names) - set(NAMES):
        parser.error(f"there is no program {sorted(unknown)[0]!r}; choose from {', '.join(NAMES)}")
    os.environ["LUDUS_HARNESSES"] = str(PROGRAMS)
    rows: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    failed = False
    for name in options.names or NAMES:
        program = find_program(name)
        try:
            installed_folder(program)
        except NotInstalled:
            print(f"{name}: not installed; python scripts/peers.py harnesses/{name} installs it")
            continue
        try:
            rows[name] = asyncio.run(measure(program, options.episodes))
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}")
            failed = True
            continue
        print(f"{name}: {rows[name]}", flush=True)
        RESULTS.write_text(json.dumps(dict(sorted(rows.items())), indent=1) + "\n", encoding="utf-8")
    return int(failed)


async def measure(program: Program, episodes: int) -> dict[str, Any]:
    """Return the row of a program."""
    renderer = Renderer(make_tokenizer((), 300))
    with quickstart.serving("guess_number") as server:

        async def played(options: str, index: int) -> Played:
            text = f"{program.name} {options}".strip()
            trial = await play(server, text, guesser(program.name), renderer, ENVIRONMENT, index)
            check_exact(trial.episode.session, trial.engine)
            if (failure := trial.episode.trajectory().failure) is not None:
                raise RuntimeError(failure.message)
            return trial

        boxed = [await played("", index) for index in range(episodes)]
        full = None if program.bridge else await played("--own-tools", 0)
    sessions = [trial.episode.session for trial in boxed]
    return {
        "date": datetime.date.today().isoformat(),
        "version": program.version,
        "calls": statistics.median(len(session.calls) for session in sessions),
        "samples": max(len(session.samples) for session in sessions),
        "cpu_seconds": round(statistics.median(trial.cpu_seconds for trial in boxed), 1),
        "seconds": round(statistics.median(trial.seconds for trial in boxed), 1),
        "prompt_letters": len(boxed[0].prompt),
        "own_prompt_letters": None if full is None else len(full.prompt),
    }


if __name__ == "__main__":
    sys.exit(main())
