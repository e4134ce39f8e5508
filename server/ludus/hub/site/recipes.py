"""Complete configurations with which other trainers train on a version.

They are the files of the documentation of the integrations, which its tests run, with the address, the environment and
the splits of the version in place of the ones in the documentation. `scripts/generate_recipes.py` copies them from
`docs/snippets` into this package.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final, NamedTuple

from ludus.registry.types.packages import EnvironmentEntry

DOCUMENTED_URLS: Final = ("http://10.0.0.5:8000", "https://ludus.example.com")
"""The addresses in the files."""

DOCUMENTED_NAMES: Final = ("wordle", "guess_number")
"""The names of environments in the files."""

SNIPPETS: Final = (
    "ludus_sums.py", "nemo_gym.yaml", "nemo_gym_app.py", "openrlhf_agent.py", "openrlhf_run.sh", "skyrl_run.sh",
    "tinker_train.py", "verifiers_rl.toml", "verl_agent.yaml", "verl_run.sh",
)  # fmt: skip
"""The files of the documentation that are shown."""


class RecipeFile(NamedTuple):
    """One file or command of a recipe."""

    name: str
    """The name of the file; empty for commands to run."""
    text: str


@dataclass(frozen=True)
class Recipe:
    """How one trainer trains on an environment.

    Attributes:
        title: the trainer.
        install: what to install.
        about: what the recipe does, and what else it needs.
        parts: its files and commands, in order.
    """

    title: str
    install: str
    about: str
    parts: tuple[RecipeFile, ...]


class Place(NamedTuple):
    """Where the tasks are."""

    url: str
    name: str
    train: str
    kept: str
    """The split for evaluations during the training."""


def place_of(entry: EnvironmentEntry, url: str) -> Place:
    """Return where the tasks of an environment are. Test splits are for the publisher, so evaluations use none."""
    train = next((split.name for split in entry.splits if split.type == "train"), "train")
    kept = next((split.name for split in entry.splits if split.type == "validation"), train)
    return Place(url, entry.name, train, kept)


def recipes(place: Place) -> list[Recipe]:
    """Return the recipes of all trainers."""
    return [
        Recipe(
            "verl", "pip install ludus-rl 'verl==0.9.*'", "GRPO on one GPU, from the tokens that verl sampled.",
            (RecipeFile("verl_agent.yaml", _text("verl_agent.yaml")), RecipeFile("", _shell("verl_run.sh", place))),
        ),
        Recipe(
            "SkyRL", "pip install ludus-rl 'skyrl[fsdp]==0.4.*' 'skyrl-gym==0.4.*'", "GRPO on one GPU.",
            (RecipeFile("", _shell("skyrl_run.sh", place)),),
        ),
        Recipe(
            "OpenRLHF", "pip install ludus-rl 'openrlhf[vllm]==0.11.*'", "RLOO on one GPU.",
            (RecipeFile("openrlhf_agent.py", _text("openrlhf_agent.py")),
             RecipeFile("", _shell("openrlhf_run.sh", place))),
        ),
        Recipe(
            "verifiers and prime-rl", "pip install verifiers==0.4.0 ludus-rl",
            "The plugin module, somewhere in PYTHONPATH, and the settings of a run of prime-rl on two GPUs.",
            (RecipeFile("ludus_sums.py", _text("ludus_sums.py")),
             RecipeFile("rl.toml", _quoted("verifiers_rl.toml", place))),
        ),
        Recipe(
            "tinker-cookbook", "pip install ludus-rl 'tinker-cookbook==0.6.*'", "Needs a Tinker account.",
            (RecipeFile("tinker_train.py", _quoted("tinker_train.py", place)),),
        ),
        Recipe(
            "NeMo Gym", "pip install ludus-rl", "A resources server of NeMo Gym, its configuration, and the data.",
            (RecipeFile("app.py", _text("nemo_gym_app.py")), RecipeFile("ludus.yaml", _text("nemo_gym.yaml")),
             RecipeFile("", _export(place, "nemo-gym", "jsonl"))),
        ),
        Recipe(
            "Inspect AI", "pip install inspect-ai==0.3.285 ludus-rl", "An evaluation of any model that Inspect calls.",
            (RecipeFile("", _inspect(place)),),
        ),
    ]  # fmt: skip


def stored_name(name: str) -> str:
    """Return under which name a file of the documentation lies here: no tool may take it for a module of the hub."""
    return f"{name}.txt" if name.endswith(".py") else name


@cache
def _text(name: str) -> str:
    return files("ludus.hub.site").joinpath("templates", "recipes", stored_name(name)).read_text(encoding="utf-8")


def _shell(name: str, place: Place) -> str:
    """Return a file of commands for an environment. Names may hold anything, so they are quoted."""
    known = {"--split train ": f"--split {shlex.quote(place.train)} "}
    known["--split validation "] = f"--split {shlex.quote(place.kept)} "
    where = f"{shlex.quote(place.url)} {shlex.quote(place.name)} "
    known |= {f"{url} {one} ": where for url in DOCUMENTED_URLS for one in DOCUMENTED_NAMES}
    return _replaced(_text(name), known)


def _quoted(name: str, place: Place) -> str:
    """Return a file of Python or TOML for an environment; both read strings as JSON writes them."""
    known = {
        **dict.fromkeys(DOCUMENTED_URLS, place.url), **dict.fromkeys(DOCUMENTED_NAMES, place.name),
        "train": place.train, "validation": place.kept,
    }  # fmt: skip
    return _replaced(_text(name), {f'"{one}"': json.dumps(ours, ensure_ascii=False) for one, ours in known.items()})


def _replaced(text: str, known: dict[str, str]) -> str:
    """Replace all documented values at once: what is put in may look like one of them."""
    return re.sub("|".join(map(re.escape, known)), lambda found: known[found[0]], text)


def _export(place: Place, form: str, suffix: str) -> str:
    lines = []
    for split, file, count in ((place.train, "train", 4096), (place.kept, "validation", 128)):
        given = " ".join(shlex.quote(one) for one in (place.url, place.name, "--split", split))
        lines.append(f"ludus export {given} --form {form} --out {file}.{suffix} -n {count}\n")
    return "".join(lines)


def _inspect(place: Place) -> str:
    options = " ".join(
        f"-T {shlex.quote(f'{key}={value}')}"
        for key, value in (("url", place.url), ("environment", place.name), ("split", place.kept), ("n", "50"))
    )
    return f"inspect eval ludus/environment --model openai/MODEL {options} --epochs 4\n"
