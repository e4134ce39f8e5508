"""What SmolLM2-135M-Instruct, a model that a laptop runs, earns on the easiest level of each built-in environment.

    python benchmarks/pass_rates.py [--only NAME,…] [--tasks 20] [--folder runs/pass_rates] [--write] [--KEY=VALUE…]

Each environment is served by a process of its own and played by `ludus train` without a step of training: one episode
of each of the first validation tasks at temperature 1, at most 8 turns of 160 tokens in 16,384 tokens of context. The
model comes from the peer `smollm2` and is not trained. `--write` puts the rows into docs/environments.md; with
`--only`, the rows of the other environments stay as they are. Options such as `--device=cuda` are passed to
`ludus train`.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Collection
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

from ludus.trainer.quickstart import serving

ROOT: Final = Path(__file__).resolve().parents[1]
LUDUS: Final = Path(sys.executable).with_name("ludus")
PAGE: Final = ROOT / "docs" / "environments.md"
BEGIN: Final = "<!-- measured pass rates -->"
END: Final = "<!-- pass rates until here -->"
EASIEST: Final = {"guess_number": "tiny"}
"""The easiest variant where it is not `easy`."""
SETTINGS: Final = """\
output = {output}
steps = 0
threads = 2

[model]
path = {model}
chat_template = {template}

[[environments]]
url = "{url}"
name = "{name}"

[rollouts]
max_turns = 8
max_tokens = 160
context = 16_384
tool_calls = "hermes"
episode_seconds = 3_600.0
turn_seconds = 3_600.0

[engine.torch]
slots = 32
cache_tokens = 262_144

[evaluation]
split = "validation"
tasks = {tasks}

[checkpoints]
every = 0
export = false

[logging]
console = false
"""


def built_in() -> list[str]:
    """Return the names of the environments that come with Ludus, in the order of the alphabet."""
    return sorted(one.name for one in entry_points(group="ludus.environments") if one.value.startswith("ludus."))


def measure(name: str, model: Path, folder: Path, tasks: int, more: list[str]) -> dict[str, Any]:
    """Let the model play the easiest level of an environment, and return its figures."""
    level, own = f"{name}-{EASIEST.get(name, 'easy')}", folder / name
    own.mkdir(parents=True, exist_ok=True)
    began = time.time()
    with serving(name) as url:
        texts = {"output": own, "model": model, "template": ROOT / "examples" / "smollm2_tools.jinja"}
        quoted = {key: json.dumps(str(path)) for key, path in texts.items()}
        (own / "run.toml").write_text(SETTINGS.format(url=url, name=level, tasks=tasks, **quoted), "utf-8")
        command = [str(LUDUS), "train", str(own / "run.toml"), "--checkpoints.resume=false", *more]
        subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, check=True)
    lines = [json.loads(line) for line in (own / "metrics.jsonl").read_text("utf-8").splitlines()]
    last = [line for line in lines if f"evaluation/{level}/mean" in line][-1]
    values = {key.rpartition("/")[2]: value for key, value in last.items() if key.startswith("evaluation/")}
    return {
        "level": level, "tasks": tasks, "failed": int(values["failed"]), "mean": values["mean"],
        "solved": values["pass@1"], "low": values["pass@1_low"], "high": values["pass@1_high"],
        "seconds": time.time() - began, "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }  # fmt: skip


def row(name: str, one: dict[str, Any]) -> str:
    """Return an environment's row of the Markdown table."""
    played = one["tasks"] - one["failed"]
    failed = f", {one['failed']} failed" if one["failed"] else ""
    return (
        f"| `{name}` | `{one['level']}` | {round(one['solved'] * played)} of {played}{failed} | "
        f"{one['low']:.0%} to {one['high']:.0%} | {one['mean']:.2f} | {one['date']} |"
    )


HEAD: Final = (
    "| environment | level | solved | 95 % interval | mean reward | measured |",
    "|---|---|---|---|---|---|",
)


def written(text: str, found: dict[str, dict[str, Any]], names: Collection[str]) -> str:
    """Return the text of the page with rows of the environments that were measured, sorted by name.

    Args:
        text: the text.
        found: what was measured.
        names: the environments that there are; those that were not measured keep the rows that they have, or get one
            that says so.
    """
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    rows = {one[1]: one[0] for one in re.finditer(r"^\| `(\w+)` \|.*$", text[begin:end], re.MULTILINE)}
    rows = {name: rows.get(name, f"| `{name}` | – | not measured | – | – | – |") for name in names}
    rows |= {name: row(name, one) for name, one in found.items()}
    lines = "\n".join([*HEAD, *(rows[name] for name in sorted(rows))])
    return f"{text[:begin]}\n{lines}\n{text[end:]}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=None, help="names, separated by commas")
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "pass_rates")
    parser.add_argument("--write", action="store_true")
    options, more = parser.parse_known_args()
    folder = options.folder.resolve()
    model = folder / "model"
    subprocess.run([sys.executable, str(ROOT / "scripts" / "smollm2.py"), str(model)], check=True)
    found: dict[str, dict[str, Any]] = {}
    for name in options.only.split(",") if options.only else built_in():
        try:
            found[name] = measure(name, model, folder, options.tasks, more)
        except subprocess.CalledProcessError as error:
            print(f"{name}: {error}", file=sys.stderr, flush=True)
            continue
        print(row(name, found[name]), flush=True)
        (folder / "found.json").write_text(json.dumps(found, indent=1), "utf-8")
        if options.write:
            PAGE.write_text(written(PAGE.read_text("utf-8"), found, built_in()), "utf-8")
    if missing := set(options.only.split(",") if options.only else built_in()) - set(found):
        raise SystemExit(f"not measured: {', '.join(sorted(missing))}")


if __name__ == "__main__":
    main()
