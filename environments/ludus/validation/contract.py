"""Checks of what an environment declares: its description, splits, tasks, prompts and tools."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any, Final

from ludus.client.policies import RandomPolicy
from ludus.protocol.errors import LudusError
from ludus.validation.core.checks import Evidence, NotApplicable, Problem, Suite, error, short, warning
from ludus.validation.core.target import ValidationTarget, evidence
from ludus.validation.core.transcripts import Script, perform, prompt_of

suite = Suite()

LISTED: Final = 1000
"""The most tasks of a split that are listed."""

_UNRENDERED: Final = (
    (re.compile(r"\{\{\s*[\w.]+\s*\}\}|\{%.*?%\}"), "a template's placeholder that was not filled in"),
    (re.compile(r"\{(?:self|task)\.\w+\}"), "a placeholder of a format string that was not filled in"),
    (re.compile(r"<[\w.]+ object at 0x[0-9a-f]+>|<(?:bound method|function|coroutine) "), "the repr of an object"),
    (re.compile(r"(?:^|[\s(])(?:TODO|FIXME|XXX)\b"), "a note to its author"),
)

_CODE: Final = re.compile(r"(```|~~~).*?(?:\1|\Z)|(`+)(?!`).+?(?<!`)\2(?!`)", re.DOTALL)
"""Matches quoted text in fences or between backticks, which may contain placeholders on purpose."""


@suite.check("documented", "The environment, its tools and their parameters are described", "static.manifest")
async def documented(target: ValidationTarget) -> AsyncIterator[Problem]:
    info = target.info
    if not info.description.strip():
        yield warning("the environment has no description: write a docstring, by which users choose an environment")
    bare = [Evidence(f"tool {tool.name!r}") for tool in info.tools if not tool.description.strip()]
    if bare:
        yield warning(
            "tools without a description: write their docstrings, which are all that a model reads about them", bare
        )
    nameless = [
        Evidence(f"{tool.name}({name})")
        for tool in info.tools
        for name, schema in _properties(tool.input_schema).items()
        if len(_properties(tool.input_schema)) > 1 and not (isinstance(schema, dict) and schema.get("description"))
    ]
    if nameless:
        yield warning("parameters without a description: add an `Args:` section to the tool's docstring", nameless)


@suite.check(
    "splits", "The environment has tasks to train on and others to test on", "static.task_distribution_pinning"
)
async def splits(target: ValidationTarget) -> AsyncIterator[Problem]:
    types = {split.info.type for split in target.splits}
    if "train" not in types:
        yield warning("there is no split of type `train`, so a trainer has no tasks")
    if not types & {"validation", "test"}:
        yield warning("there is no split of type `validation` or `test`, so nothing measures what was learned")


@suite.check("task-list", "Every task is available once, under the id and index of its list entry",
             "runtime.task_declaration_accuracy")  # fmt: skip
async def task_list(target: ValidationTarget) -> AsyncIterator[Problem]:
    missing: list[Evidence] = []
    wrong: list[Evidence] = []
    for split in target.splits:
        name, count = split.info.name, split.info.count
        indices: dict[str, int] = {}
        try:
            async for row in target.environment.tasks(name, page=200):
                if row.id in indices:
                    wrong.append(Evidence(f"has index {indices[row.id]} and {row.index}", name, row.id))
                if row.index != len(indices):
                    wrong.append(Evidence(f"is listed at position {len(indices)} with index {row.index}", name, row.id))
                indices[row.id] = row.index
                if len(indices) >= LISTED or len(wrong) > 20:
                    break
        except LudusError as failure:
            missing.append(Evidence(short(f"after {len(indices)} tasks: {failure.message}"), name))
            continue
        if count is not None and len(indices) < min(count, LISTED) and not wrong:
            missing.append(Evidence(f"the split states {count} tasks, and lists {len(indices)}", name))
        for index in [0, 1, 1000] if count is None else sorted({0, count // 2, count - 1}):
            try:
                row = await target.environment.task(name, index=index)
                again = await target.environment.task(name, task=row.id)
            except LudusError as failure:
                missing.append(Evidence(short(f"index {index}: {failure.message}"), name))
                continue
            if again.index != index or again.fields != row.fields:
                wrong.append(
                    Evidence(f"index {index} is this task, but its id leads to index {again.index}", name, row.id)
                )
    if missing:
        yield error("announced tasks are not available: correct the split's generator or its count", missing)
    if wrong:
        yield error("ids and indices of tasks do not agree: give each task of a split a unique id", wrong)


@suite.check("task-stability", "A task is the same each time and in every process", "static.task_distribution_pinning")
async def task_stability(target: ValidationTarget) -> AsyncIterator[Problem]:
    changed: list[Evidence] = []
    with_fields = [row for row in target.tasks if row.fields]
    elsewhere = await target.second.environment() if target.second is not None else target.environment
    elsewhere_text = "in another process" if target.second is not None else "when requested again"
    for row in target.tasks:
        try:
            again = await elsewhere.task(row.split, index=row.index)
        except LudusError as failure:
            changed.append(Evidence(short(f"{elsewhere_text}: {failure.message}"), row.split, row.id))
            continue
        if again != row:
            difference = f"index {row.index} is {_row(row)}; {elsewhere_text} it is {_row(again)}"
            changed.append(Evidence(difference, row.split, row.id))
        elif not row.fields and with_fields and not changed and not await _reworded(target, with_fields[0], elsewhere):
            # Rows of test splits show no fields, so the prompts are compared instead.
            prompt_here, prompt_there = (
                await _prompt(target, row, target.environment),
                await _prompt(target, row, elsewhere),
            )
            if prompt_here != prompt_there:
                changed.append(
                    Evidence(
                        f"the prompt is {short(prompt_here)!r}; {elsewhere_text} {short(prompt_there)!r}",
                        row.split,
                        row.id,
                    )
                )
    if changed:
        yield error(
            "tasks change between processes: make each from its index alone, with `random.Random(f'{split}-{index}')`, "
            "and without sets, `hash()` or the clock",
            changed,
        )


async def _reworded(target: ValidationTarget, row: Any, elsewhere: Any) -> bool:
    """Return whether the prompts of one task differ between processes, or from one episode to the next."""
    prompt_here = await _prompt(target, row, target.environment)
    again, prompt_there = await _prompt(target, row, target.environment), await _prompt(target, row, elsewhere)
    return not prompt_here == again == prompt_there


async def _prompt(target: ValidationTarget, row: Any, environment: Any) -> str:
    if not target.info.seedable:
        return ""
    script = Script(row.split, row.id, target.settings.seed, (), "no-op")
    try:
        transcript = await perform(environment, script, target.settings.secrets)
    except LudusError:
        return ""
    return str(dict(transcript.events)["prompt"])


def _row(row: Any) -> str:
    return short(f"{row.id} {row.fields}", 90)


@suite.check("prompt", "Every prompt has content, and no leftovers of a program", "runtime.observation_schema")
async def prompt(target: ValidationTarget) -> AsyncIterator[Problem]:
    empty: list[Evidence] = []
    spoiled: list[Evidence] = []
    for play in await target.played("no-op"):
        if play.failure is not None:
            continue
        text = prompt_of(play)
        images = any("input_image" in str(item) for item in play.items)
        if not text.strip() and not images:
            empty.append(evidence(play, "the prompt is empty"))
        # Rows of test splits show no fields; the environment's code has all of them.
        public = target.task(play.task).public() if target.local is not None else play.task.fields
        fields = json.dumps(public, ensure_ascii=False, default=str)
        for pattern, meaning in _UNRENDERED:
            for match in pattern.finditer(_CODE.sub(" ", text)):
                if json.dumps(match[0].strip(), ensure_ascii=False)[1:-1] not in fields:
                    spoiled.append(evidence(play, f"{match[0].strip()!r}: {meaning}"))
                    break
    if empty:
        yield error("prompts without any text or image: return the policy's instructions from `prompt`", empty)
    if spoiled:
        yield warning(
            "prompts that seem to contain leftovers of a program: correct the text that `prompt` makes, or quote it in "
            "backticks if it is intended",
            spoiled,
        )


@suite.check("tools", "Tools accept the calls that their schemas allow", "runtime.tool_declaration_accuracy")
async def tools(target: ValidationTarget) -> AsyncIterator[Problem]:
    calls: dict[str, list[bool]] = {}
    refused: dict[str, Evidence] = {}
    for play in await target.played("random"):
        names = {item.get("call_id"): item.get("name") for item in play.items if item.get("type") == "function_call"}
        texts = {
            item.get("call_id"): item.get("output") for item in play.items if item["type"] == "function_call_output"
        }
        for step in play.steps:
            name = str(names.get(step.call_id))
            calls.setdefault(name, []).append(step.error == "invalid_arguments")
            if step.error == "invalid_arguments" and step.step:
                refused.setdefault(name, evidence(play, f"{name}: {short(str(texts.get(step.call_id)))}"))
    if not calls:
        raise NotApplicable("no tool was called")
    wrong = [name for name, outcomes in calls.items() if name in refused and all(outcomes)]
    understood = await _understood(target) if wrong else set()
    if examples := [refused[name] for name in wrong if name not in understood]:
        yield error(
            "tools refuse every call that their own schema allows: describe in the schema what is allowed", examples
        )


async def _understood(target: ValidationTarget) -> set[str]:
    """Return the tools that accepted a call of the oracle; random values may not satisfy such a tool's constraints."""
    try:
        plays = await target.played("oracle")
    except NotApplicable:
        return set()
    accepted = {
        (play.episode, step.call_id) for play in plays for step in play.steps if step.error != "invalid_arguments"
    }
    return {
        str(item.get("name"))
        for play in plays
        for item in play.items
        if item.get("type") == "function_call" and (play.episode, item.get("call_id")) in accepted
    }


@suite.check("endless", "Every episode ends, whatever the policy does", "static.timeout_ceiling",
             "runtime.resource_bounds")  # fmt: skip
async def endless(target: ValidationTarget) -> AsyncIterator[Problem]:
    if not target.tasks:
        raise NotApplicable("there are no tasks")
    rows = [row for row in target.sample_tasks(4) if await target.tools_of(row)]
    if not rows:
        raise NotApplicable("without tools, the final message ends every episode")
    limits = await _limits(target, rows[0])
    if limits is not None and limits.max_steps is None and limits.seconds is None:
        plays = await target.play(RandomPolicy(target.settings.seed, answers=0), tasks=rows)
        stuck = [play for play in plays if play.stopped == "turn_limit"]
        if stuck:
            yield warning(
                f"episodes continue after {target.settings.turns} turns and have no limit: set "
                "`limits = EpisodeLimits(max_steps=…)`, or a policy that repeats itself never ends an episode",
                [evidence(play, f"{len(play.steps)} steps, still running") for play in stuck],
            )


async def _limits(target: ValidationTarget, row: Any) -> Any:
    try:
        async with target.environment.episode(
            split=row.split, task=row.id, seed=target.seed(), secrets=target.settings.secrets
        ) as episode:
            return episode.limits
    except LudusError:
        return None


def _properties(schema: dict[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties", {})
    return properties if isinstance(properties, dict) else {}
