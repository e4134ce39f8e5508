"""One whole task of each built-in environment for its README, and what shortcuts, random play and the oracle earn.

    python benchmarks/cards.py [--only NAME…] [--tasks 48] [--seconds 60] [--examples] [--write]

The task is the first training task of the easiest level, with its prompt, its tools and the oracle's episode. The
rewards are measured by the shortcuts of `ludus validate` on test tasks of every level, with as many tasks and as much
time as the options say; a level's best shortcut of a kind counts. `--examples` only writes the tasks. With `--write`,
the README of each environment and docs/environments.md get what was measured; other rows of the page stay as they are.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

from environments import PAGE, built_in

from ludus.client import Policy, RandomPolicy, RemoteEnvironment, connect, rollout_all
from ludus.protocol import Message
from ludus.protocol.content import text_of
from ludus.validation import Settings, validate
from ludus.validation.core.local_environments import LocalEnvironments
from ludus.validation.core.oracle import OraclePolicy
from ludus.validation.core.server_process import serving
from ludus.validation.shortcuts import DEFAULT_BOUND, NAMES

ENVIRONMENTS: Final = Path(__file__).resolve().parents[1] / "environments"
BEGIN: Final = "<!-- measured shortcuts -->"
END: Final = "<!-- shortcuts until here -->"
TASK: Final = "a whole task"
EARNED: Final = "what policies earn"
LONGEST_RESULT: Final = 700
"""The characters of a tool's result that a README shows."""
LONGEST_EPISODE: Final = 14
"""The steps of the oracle's episode that it shows, the first and the last ones."""
SECONDS: Final = 3600.0


@dataclass(slots=True)
class Card:
    """What is shown of one environment."""

    name: str
    example: str = ""
    earned: dict[str, dict[str, float]] = field(default_factory=dict)
    """The mean rewards of each level by policy."""
    allowed: float = 0.0

    def best(self, policy: str) -> float | None:
        """Return the most that a policy earns on a level; None if it could not be tried."""
        return max((rewards[policy] for rewards in self.earned.values() if policy in rewards), default=None)


async def example_of(environment: RemoteEnvironment) -> str:
    """Return the first training task with its prompt, its tools and the oracle's episode, as Markdown."""
    row = await environment.task("train", index=0)
    (play,) = await rollout_all(environment, OraclePolicy(LocalEnvironments()), split="train", tasks=[row], seed=0)
    messages = [item for item in play.conversation if isinstance(item, Message) and item.role != "assistant"]
    prompt = _block("\n\n".join(text_of(message.content) for message in messages))
    tools = ", ".join(f"`{tool['name']}`" for tool in play.tools) or "none"
    episode = _block("\n".join(_steps(play.items)))
    return (
        f"Task `{play.task.id}` of `{environment.name}`; its tools: {tools}.\n\nThe prompt:\n\n{prompt}\n\n"
        f"The oracle's episode:\n\n{episode}\n\nIt earns {play.value:g}."
    )


def _steps(items: Sequence[dict[str, Any]]) -> list[str]:
    steps: list[str] = []
    for item in items:
        match item.get("type"):
            case "function_call":
                arguments = item.get("arguments")
                parsed = json.loads(arguments) if isinstance(arguments, str) else arguments
                shown = ", ".join(f"{name}={value!r}" for name, value in (parsed or {}).items())
                steps.append(f"→ {item['name']}({_cut(shown)})")
            case "function_call_output":
                steps.append(f"← {_cut(str(item.get('output')))}")
            case "message" if item.get("role") == "assistant":
                steps.append(f"→ {_cut(_message(item))}")
            case _:
                pass
    if len(steps) > LONGEST_EPISODE:
        half = LONGEST_EPISODE // 2
        return [*steps[:half], f"… {len(steps) - 2 * half} more calls and results …", *steps[-half:]]
    return steps


def _message(item: dict[str, Any]) -> str:
    content = item.get("content")
    return content if isinstance(content, str) else "".join(str(part.get("text", "")) for part in content or ())


def _cut(text: str) -> str:
    rest = len(text) - LONGEST_RESULT
    return text if rest <= 0 else f"{text[:LONGEST_RESULT]}… ({rest} more characters)"


def _block(text: str) -> str:
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    return f"{fence}text\n{text.rstrip()}\n{fence}"


async def measure(name: str, tasks: int, seconds: float, examples: bool) -> Card:
    """Return the card of an environment."""
    cls = LocalEnvironments().published(easiest(name)).cls
    low, high = cls.reward_range
    baseline = max(low, cls.random_baseline or 0.0)
    card = Card(name, allowed=max([baseline + DEFAULT_BOUND * (high - baseline), *cls.shortcut_bounds.values()]))
    policies: dict[str, Policy] = {"random": RandomPolicy(0), "oracle": OraclePolicy(LocalEnvironments())}
    async with serving([name]) as process, connect(process.url) as client:
        card.example = await example_of(client.environment(easiest(name)))
        for level in () if examples else [info.name for info in await client.environments()]:
            environment = client.environment(level)
            for label, policy in policies.items():
                plays = await rollout_all(environment, policy, split="test", n=tasks, seed=0, concurrency=4)
                values = [play.value for play in plays if play.value is not None]
                card.earned.setdefault(level, {})[label] = statistics.fmean(values)
    if examples:
        return card
    settings = Settings(shortcut_tasks=tasks, shortcut_seconds=seconds, episode_seconds=SECONDS)
    for report in await validate(name, settings=settings, only=[f"shortcut:{shortcut}" for shortcut in NAMES]):
        for shortcut in NAMES:
            if (value := report.measured.get(f"shortcut_{shortcut.replace('-', '_')}")) is not None:
                card.earned[report.environment][shortcut] = value
    return card


def easiest(name: str) -> str:
    """Return the name of an environment's easiest level."""
    entry = next(entry for entry in entry_points(group="ludus.environments") if entry.name == name)
    variants = [f"{name}-{variant}" for variant in entry.load().variants]
    return next((variant for variant in variants if variant.endswith(("-tiny", "-easy"))), name)


def table_of(card: Card) -> str:
    """Return the rewards of one environment's levels, as Markdown."""
    policies = ["random", *NAMES, "oracle"]
    lines = [
        "| policy | " + " | ".join(f"`{level}`" for level in card.earned) + " |",
        "|---" * (1 + len(card.earned)) + "|",
    ]
    for policy in policies:
        cells = [f"{rewards[policy]:.2f}" if policy in rewards else "–" for rewards in card.earned.values()]
        lines.append(f"| {policy} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def write_readme(card: Card) -> None:
    """Put the task and the rewards into the environment's README, before its splits."""
    folders = (ENVIRONMENTS / "library" / card.name, ENVIRONMENTS / "ludus" / "environments" / card.name)
    path = next(readme for folder in folders if (readme := folder / "README.md").exists())
    text = path.read_text(encoding="utf-8")
    text = _with_block(text, TASK, "## A whole task", card.example, before="## Splits")
    if card.earned:
        words = (
            "Mean rewards on test tasks. The shortcuts are those of `ludus validate`: the same actions on every task,\n"
            "what solves the most similar training task, blind search, and the prompt alone. A dash says that a\n"
            "shortcut cannot be tried here."
        )
        text = _with_block(text, EARNED, "## What policies earn", f"{words}\n\n{table_of(card)}", before="## Variants")
    path.write_text(text, encoding="utf-8")


def _with_block(text: str, name: str, heading: str, content: str, *, before: str) -> str:
    begin, end = f"<!-- begin: {name} -->", f"<!-- end: {name} -->"
    block = f"{begin}\n{content}\n{end}"
    if begin in text:
        return text[: text.index(begin)] + block + text[text.index(end) + len(end) :]
    return text.replace(f"\n{before}\n", f"\n{heading}\n\n{block}\n\n{before}\n", 1)


def write_page(cards: Sequence[Card]) -> None:
    """Put the rows of the measured environments into the page of all environments."""
    text = PAGE.read_text(encoding="utf-8")
    first, last = text.index(BEGIN), text.index(END)
    rows = dict(re.findall(r"^(\| `(?:\w+)` \|)(.*)$", text[first:last], re.MULTILINE))
    for card in cards:
        best = [card.best(policy) for policy in (*NAMES, "random", "oracle")]
        cells = ["–" if value is None else f"{value:.2f}" for value in best]
        rows[f"| `{card.name}` |"] = " " + " | ".join([*cells, f"{card.allowed:.2f}"]) + " |"
    heads = "| environment | " + " | ".join(name.replace("-", " ") for name in NAMES) + " | random | oracle | allowed |"
    table = "\n".join([heads, "|---" * 8 + "|", *(key + rows[key] for key in sorted(rows))])
    PAGE.write_text(f"{text[:first]}{BEGIN}\n{table}\n{text[last:]}", encoding="utf-8")


def main() -> None:
    """Measure and write what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=built_in(), help="environments; all by default")
    parser.add_argument("--tasks", type=int, default=48, help="the most test tasks of each level")
    parser.add_argument("--seconds", type=float, default=60.0, help="the longest time of a shortcut on a level")
    parser.add_argument("--examples", action="store_true", help="write the tasks, and measure nothing")
    parser.add_argument("--write", action="store_true", help="write the READMEs and docs/environments.md")
    options = parser.parse_args()
    for name in options.only:
        card = asyncio.run(measure(name, options.tasks, options.seconds, options.examples))
        print(f"{name}\n{table_of(card) if card.earned else card.example}", flush=True)
        if options.write:
            write_readme(card)
            if card.earned:
                write_page([card])


if __name__ == "__main__":
    main()
