"""Checks of shortcuts: policies that do not do what the task asks must earn little on the tasks of a test split.

Unlike the tricks of `reward_hacking`, a shortcut spans episodes: it is learned from training tasks, or it searches.
Each has a bound: the random baseline and 5 % of the distance to the best reward, unless the class declares another one
(`shortcut_bounds`). A shortcut counts only if its average reward is above the bound beyond chance.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any, Final

from ludus.protocol.actions import Action, Answer, Call
from ludus.protocol.episodes import TaskRow
from ludus.protocol.errors import LudusError
from ludus.protocol.trajectory import Trajectory
from ludus.validation.core.checks import Evidence, NotApplicable, Problem, Suite, error, short, warning
from ludus.validation.core.distinct import SAME_TASKS
from ludus.validation.core.target import ValidationTarget, evidence_of
from ludus.validation.core.transcripts import Script, prompt_of
from ludus.validation.reward_hacking.slots import texts_in
from ludus.validation.shortcuts.extraction import Rule, learn_rule, without_label
from ludus.validation.shortcuts.grid_search import all_combinations, position_by_position, step_by_step
from ludus.validation.shortcuts.halving import halving
from ludus.validation.shortcuts.memory import (
    CONTENT,
    Memory,
    Remembered,
    Similarity,
    carried_over,
    rare_lines,
    remember,
    words,
)
from ludus.validation.shortcuts.search import blind_search, repair_blindly
from ludus.validation.shortcuts.submission import final_text, with_final_text

suite = Suite(scored=True)

NAMES: Final = ("constant", "nearest", "search", "prompt-only")
"""The shortcuts, by the names that `shortcut_bounds` has for them."""

DEFAULT_BOUND: Final = 0.05
"""What a shortcut may earn above the random baseline, as a share of the distance to the best reward."""

CERTAIN: Final = 1.96
"""How many standard errors the average reward must lie above the bound."""

FEWEST: Final = 4
"""The fewest test tasks from which an average is judged."""

CONSTANTS: Final = 3
"""How many of the most frequent solutions are tried as fixed actions."""

STEPS: Final = 200
"""The most actions of a policy that tries all actions seen in training, if the environment has no lower limit."""

EXPLAINED_BY: Final[Mapping[str, frozenset[str]]] = {
    "nearest": frozenset({*SAME_TASKS, "rewordings"}),
    "search": frozenset({"leakage", "endless"}),
    "prompt-only": frozenset({"leakage"}),
}
"""The findings of other checks with which a shortcut succeeds in any case."""

MOSTLY: Final = 0.8
"""The share of the oracle's episodes whose tools tell nothing new, from which the tools are superfluous."""

Choose = Callable[[Remembered], Awaitable[Sequence[Action] | None]]
"""Returns a shortcut's actions on a test task; None if it has none."""

Earned = list[tuple[float, Evidence]]


def bound_of(target: ValidationTarget, name: str) -> float:
    """Return what a shortcut may earn."""
    declared = getattr(target.local.cls, "shortcut_bounds", {}) if target.local is not None else {}
    if name in declared:
        return float(declared[name])
    return target.random_baseline + DEFAULT_BOUND * (target.top - target.random_baseline)


async def earned_by(target: ValidationTarget, name: str, tasks: Sequence[Remembered], choose: Choose) -> Earned:
    """Play a shortcut on tasks, as far as the time allows, and return what it earned on each, with evidence."""
    deadline = time.monotonic() + target.settings.shortcut_seconds
    turns = asyncio.Semaphore(target.settings.concurrency)

    async def play(task: Remembered) -> tuple[float, Evidence] | None:
        async with turns:
            if time.monotonic() > deadline:
                return None
            try:
                actions = await choose(task)
                script = Script(task.row.split, task.row.id, target.seed_of(task.row), tuple(actions or ()), name)
            except LudusError:
                return None
            value = await target.reward(script)
            return None if value is None else (value, evidence_of(script, f"earned {value:g}"))

    return [outcome for outcome in await asyncio.gather(*(play(task) for task in tasks)) if outcome is not None]


def is_above(values: Sequence[float], bound: float) -> bool:
    """Return whether rewards are above a bound on average, beyond chance."""
    if len(values) < FEWEST:
        return False
    return bool(fmean(values) - CERTAIN * stdev(values) / len(values) ** 0.5 > bound)


def _judged(target: ValidationTarget, name: str, earned: Earned, description: str) -> Problem | None:
    """Return the problem of a shortcut that earned more than its bound; None if it did not."""
    values = [value for value, _ in earned]
    bound = bound_of(target, name)
    if not is_above(values, bound):
        return None
    best = [evidence for value, evidence in sorted(earned, key=lambda pair: -pair[0]) if value > bound]
    return error(
        f"{description} earns {fmean(values):.2f} on {len(values)} tasks of the test split; the bound is {bound:.2f}: "
        f"what tests must not be solved by it; or declare what it earns (`shortcut_bounds = {{\"{name}\": …}}`)",
        best,
    )  # fmt: skip


async def _memory_of(target: ValidationTarget, name: str) -> Memory:
    """Return the memory of a check.

    Raises:
        NotApplicable: there are too few tasks, or rewards are available for nothing.
    """
    if for_nothing := target.failed & {"floor-gap", "seed-variation"}:
        raise NotApplicable(f"a reward needs no solution (see `{min(for_nothing)}`)")
    if explaining := (target.failed | target.warned) & EXPLAINED_BY.get(name, frozenset()):
        raise NotApplicable(f"`{min(explaining)}` has found why this would succeed")
    memory = await remember(target)
    if len(memory.tests) < FEWEST or not memory.training:
        raise NotApplicable(f"fewer than {FEWEST} test tasks could be started")
    return memory


def _unknown(target: ValidationTarget) -> Problem | None:
    declared = getattr(target.local.cls, "shortcut_bounds", {}) if target.local is not None else {}
    unknown = sorted({*declared} - {*NAMES})
    return error(f"`shortcut_bounds` names {', '.join(unknown)}; choose from {', '.join(NAMES)}") if unknown else None


@suite.check("shortcut:constant", "The same actions on every task earn no reward", "semantic.floor_gap")
async def constant(target: ValidationTarget) -> AsyncIterator[Problem]:
    if problem := _unknown(target):
        yield problem
    memory = await _memory_of(target, "constant")
    solutions = await memory.solutions()
    if len(solutions) < FEWEST:
        raise NotApplicable("too few training tasks were solved by the oracle")
    fields = {(row.split, row.id): target.task(row).public() for row, _ in solutions}
    counts = Counter(str(actions) for _, actions in solutions)
    examples = {str(actions): (row, actions) for row, actions in reversed(solutions)}
    policies: list[tuple[str, Choose]] = []
    for text, number in counts.most_common(CONSTANTS):
        row, actions = examples[text]
        description = f"what solves {number} of {len(solutions)} training tasks, {short(text, 60)},"
        policies.append((description, _repeated(actions, fields[row.split, row.id])))
    if any(isinstance(action, Call) for _, actions in solutions for action in actions):
        policies.append(("a policy that tries all actions seen in training", _everything(target, solutions, fields)))
    for description, choose in policies:
        earned = await earned_by(target, "constant", memory.tests, choose)
        _measure(target, "constant", earned)
        if problem := _judged(target, "constant", earned, description):
            yield problem
            return


def _repeated(actions: Sequence[Action], source: Mapping[str, Any]) -> Choose:
    async def choose(task: Remembered) -> Sequence[Action]:
        return carried_over(actions, source, task)

    return choose


def _measure(target: ValidationTarget, name: str, earned: Earned) -> None:
    """Note the best average reward of a shortcut among the measurements."""
    if earned:
        key = f"shortcut_{name.replace('-', '_')}"
        value = fmean(value for value, _ in earned)
        target.measured[key] = round(max(value, target.measured.get(key, value)), 4)


def _everything(
    target: ValidationTarget,
    solutions: Sequence[tuple[TaskRow, tuple[Action, ...]]],
    fields: Mapping[tuple[str, str], Mapping[str, Any]],
) -> Choose:
    """Return a policy that takes the most frequent actions of all solutions, and ends as most of them do."""
    limit = min(STEPS, target.local.cls.limits.max_steps or STEPS)
    counted: Counter[str] = Counter()
    actions_by_text: dict[str, tuple[Action, Mapping[str, Any]]] = {}
    ends: Counter[str] = Counter()
    for row, actions in solutions:
        for action in actions[:-1]:
            counted[str(action)] += 1
            actions_by_text.setdefault(str(action), (action, fields[row.split, row.id]))
        ends[str(actions[-1])] += 1
        actions_by_text.setdefault(str(actions[-1]), (actions[-1], fields[row.split, row.id]))
    # Last actions are tried one after another, too: a wrong one may cost nothing and leave the episode open.
    final_calls = [
        actions_by_text[text] for text, _ in ends.most_common(limit // 2) if isinstance(actions_by_text[text][0], Call)
    ]
    end = actions_by_text[ends.most_common(1)[0][0]]
    chosen = [*(actions_by_text[text] for text, _ in counted.most_common(limit - len(final_calls) - 1)), *final_calls]

    async def choose(task: Remembered) -> Sequence[Action]:
        carried = [carried_over([action], source, task)[0] for action, source in [*chosen, end]]
        return list({str(action): action for action in carried}.values())

    return choose


@suite.check("shortcut:nearest", "The solution of a similar training task earns no reward", "contamination")
async def nearest(target: ValidationTarget) -> AsyncIterator[Problem]:
    memory = await _memory_of(target, "nearest")
    for name, view in _views(memory):
        earned = await earned_by(target, "nearest", memory.tests, _nearest_by(memory, view))
        description = f"repeating what solves the training task with the most similar {name}"
        _measure(target, "nearest", earned)
        if problem := _judged(target, "nearest", earned, description):
            yield problem
            return


View = Callable[[Remembered], Sequence[str]]
"""Returns the texts of a task by which it is compared with others; a task with several reports has several titles."""


def _views(memory: Memory) -> list[tuple[str, View]]:
    everything = [*memory.training, *memory.tests]
    titles = {
        (task.row.split, task.row.id): lines
        for task, lines in zip(everything, rare_lines([task.prompt for task in everything]), strict=True)
    }
    views: list[tuple[str, View]] = [("text", lambda task: [task.prompt])]
    if sum(bool(titles[task.row.split, task.row.id]) for task in memory.training) > len(memory.training) / 2:
        views.append(("title", lambda task: titles[task.row.split, task.row.id]))
    if any(_public_text(task) for task in memory.training):
        views.append(("public fields", lambda task: [_public_text(task)]))
    return views


def _nearest_by(memory: Memory, view: View) -> Choose:
    texts = [(text, task) for task in memory.training for text in view(task)]
    similarity = Similarity([text for text, _ in texts])

    async def choose(task: Remembered) -> Sequence[Action] | None:
        solutions: dict[str, Sequence[Action]] = {}
        for text in view(task):
            if (index := similarity.nearest(text)) is not None:
                alike = texts[index][1]
                if actions := await memory.solution(alike.row):
                    solutions[alike.row.id] = carried_over(actions, alike.fields, task)
        return _joined(list(solutions.values()))

    return choose


def _joined(solutions: Sequence[Sequence[Action]]) -> list[Action] | None:
    """Return the actions of several solutions, each once, with the last action of one of them at the end."""
    if len(solutions) < 2:
        return list(solutions[0]) if solutions else None
    actions = {str(action): action for solution in solutions for action in solution[:-1]}
    return [*actions.values(), solutions[0][-1]]


OVERLAP: Final = 0.5
"""The share of test tasks whose whole solutions occur in training from which tests measure what is remembered."""

COMMON: Final = 0.3
"""An action that more than this share of the training tasks need belongs to the way to solve any task."""


@suite.check(
    "oracle-overlap", "Solutions of test tasks are not put together from those of training tasks", "contamination"
)
async def oracle_overlap(target: ValidationTarget) -> AsyncIterator[Problem]:
    memory = await _memory_of(target, "nearest")
    solutions = await memory.solutions()
    tests = [(task, actions) for task in memory.tests if (actions := await memory.solution(task.row))]
    if len(solutions) < FEWEST or len(tests) < FEWEST:
        raise NotApplicable("too few tasks were solved by the oracle")
    counted = Counter(part for _, actions in solutions for part in {*telling_parts(actions)})
    common = {part for part, number in counted.items() if number > max(1, COMMON * len(solutions))}
    # A price that is offered after some small talk solves the task, and the small talk alone does not.
    offered = {amount for _, actions in solutions for amount in amounts(actions)}
    overlaps: list[Evidence] = []
    telling = 0
    for task, actions in tests:
        parts = {part for part in telling_parts(actions) if part not in common and part not in task.prompt}
        telling += bool(parts)
        if parts and parts <= counted.keys() and amounts(actions) <= offered:
            detail = f"every part of its solution solves a training task, such as {short(min(parts), 100)!r}"
            overlaps.append(Evidence(detail, task.row.split, task.row.id))
    if telling < FEWEST:
        raise NotApplicable("solutions have no texts of their own that could be compared")
    if len(overlaps) / telling >= OVERLAP:
        yield warning(
            f"{len(overlaps)} of {telling} test tasks are solved by what solves training tasks, word for word: let "
            "tests need other work, and not only have other names",
            overlaps,
        )


def telling_parts(actions: Sequence[Action]) -> list[str]:
    """Return the texts of actions that are long enough to say what was done."""
    return [text for action in actions for text in _texts(action) if len(text) >= CONTENT]


def amounts(actions: Sequence[Action]) -> set[str]:
    """Return the calls that have no text which says what was done, but a number."""
    calls = [action for action in actions if isinstance(action, Call)]
    values = [(call.tool, [str(v) for v in call.arguments.values() if not isinstance(v, bool)]) for call in calls
              if not telling_parts([call])]  # fmt: skip
    return {f"{tool} {given}" for tool, given in values if any(map(_has_digit, given))}


def _texts(action: Action) -> list[str]:
    return [action.text] if isinstance(action, Answer) else list(texts_in(action.arguments))


def _has_digit(text: str) -> bool:
    return any(character.isdigit() for character in text)


def _public_text(task: Remembered) -> str:
    return " ".join(str(value) for value in task.fields.values() if isinstance(value, str))


@suite.check("shortcut:search", "Trying until something says right earns no reward", "statistical.gameability_gap")
async def search(target: ValidationTarget) -> AsyncIterator[Problem]:
    memory = await _memory_of(target, "search")
    how_of: defaultdict[str, Earned] = defaultdict(list)
    for description, attempt in (
        ("changing single tokens of the given program until its examples hold", repair_blindly),
        ("trying one value after another until the environment says right", blind_search),
        ("halving the range of numbers of which a tool says that they are too low or too high", halving),
        ("asking for the right value of one position after another", position_by_position),
        ("setting one thing after another until a tool shows what it shows of solved tasks", step_by_step),
        ("calling the tools with all combinations of the values seen in training", all_combinations),
    ):
        choose = await attempt(target, memory)
        if choose is None:
            continue
        tasks = [task for task in memory.tests if choose.applies(task)]
        how_of[description] = await earned_by(target, "search", tasks, choose)
        _measure(target, "search", how_of[description])
        if problem := _judged(target, "search", how_of[description], description):
            yield problem
            return
    if not how_of:
        raise NotApplicable("no tool says what is right, no call has few values, and no prompt has a program with "
                            "examples")  # fmt: skip


@suite.check(
    "shortcut:prompt-only", "The prompt alone does not earn what the tools are for", "statistical.gameability_gap"
)
async def prompt_only(target: ValidationTarget) -> AsyncIterator[Problem]:
    memory = await _memory_of(target, "prompt-only")
    solutions = await memory.solutions()
    if all(len(actions) == 1 for _, actions in solutions):
        raise NotApplicable("the oracle uses no tool but the last one")
    if problem := await _superfluous_tools(target):
        yield problem
        return
    by_id = {(remembered.row.split, remembered.row.id): remembered for remembered in memory.training}
    pairs = [
        (by_id[row.split, row.id].prompt, final_text(actions))
        for row, actions in solutions
        if (row.split, row.id) in by_id
    ]
    examples = [(prompt, text) for prompt, text in pairs if text is not None]
    rule = learn_rule(examples)
    if rule is None:
        raise NotApplicable("the last action holds no text, or no rule finds it in the prompt")
    end = next(actions[-1] for _, actions in solutions if final_text(actions) is not None)
    earned = await earned_by(target, "prompt-only", memory.tests, _submitting(rule, end, examples[0][1]))
    _measure(target, "prompt-only", earned)
    if problem := _judged(target, "prompt-only", earned, f"submitting {rule.description} without using a tool"):
        yield problem


async def _superfluous_tools(target: ValidationTarget) -> Problem | None:
    """Return the problem of tools that only tell what the prompt says; None if they tell more, or do something.

    Tools do something if the oracle's last action alone does not earn what the oracle earns.
    """
    plays = [play for play in await target.played("oracle") if play.failure is None and len(play.steps) > 1]
    shown_words = {id(play): _shown_by_tools(play) for play in plays}
    usual = Counter(word for play_words in shown_words.values() for word in play_words)
    repeated: list[Evidence] = []
    for play in plays:
        telling = {word for word in shown_words[id(play)] if usual[word] <= len(plays) / 2}
        script = target.script(play)
        if telling and telling <= {*words(prompt_of(play))}:
            final = Script(script.split, script.task, script.seed, script.actions[-1:], "prompt-only")
            value = await target.reward(final)
            if value is not None and value >= (play.value or 0.0) > target.random_baseline:
                repeated.append(evidence_of(final, f"the tools showed {short(', '.join(sorted(telling)), 60)}"))
    if len(plays) < FEWEST or len(repeated) < MOSTLY * len(plays):
        return None
    return warning(
        f"in {len(repeated)} of {len(plays)} episodes of the oracle its tools tell nothing that is not in the prompt: "
        "leave it out of the prompt, or leave out the tools",
        repeated,
    )


def _shown_by_tools(play: Trajectory) -> set[str]:
    """Return the words and numbers of several characters in what tools returned before the last action."""
    calls = [item for item in play.items if item.get("type") == "function_call"]
    outputs = [item for item in play.items if item.get("type") == "function_call_output"]
    ends = len(outputs) if play.grade is not None else -1
    own_words = {*words(" ".join(str(item.get("arguments")) for item in calls))}
    return {word for item in outputs[:ends] for word in words(str(item.get("output"))) if len(word) > 1} - own_words


def _submitting(rule: Rule, end: Action, shape: str) -> Choose:
    """Return the policy that submits what a rule finds, in the shape of an answer of training (`Answer: 5`)."""

    async def choose(task: Remembered) -> Sequence[Action] | None:
        text = rule.apply(task.prompt)
        return None if text is None else [with_final_text(end, shape.replace(without_label(shape), text))]

    return choose
