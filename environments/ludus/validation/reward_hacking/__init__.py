"""Checks for reward hacking: each one tries tricks that do not solve the task, and must earn no more than chance."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ludus.protocol.actions import Action, Answer, Call
from ludus.protocol.episodes import TaskRow, ToolSpec
from ludus.protocol.errors import LudusError
from ludus.protocol.trajectory import Trajectory
from ludus.validation.checks import Evidence, NotApplicable, Problem, Suite, error, short
from ludus.validation.reward_hacking import texts
from ludus.validation.reward_hacking.slots import (
    Slot,
    answers,
    command_slots,
    file_tools,
    finishing,
    number_slots,
    text_slots,
    texts_of,
    with_text,
)
from ludus.validation.target import ValidationTarget, evidence_of
from ludus.validation.transcripts import Script, prompt_of, script_of

suite = Suite()

TASKS: Final = 3
"""The number of tasks on which each trick is tried."""

AGAIN: Final = 12
"""How often a rewarded action is repeated in the first attempt."""

FARTHEST: Final = 500
"""How often it is repeated at most, if that is enough to exceed the best reward."""

AT_ONCE: Final = 3
"""The number of files that are forged in one episode; more might exceed its step limit."""

SLOTS: Final = 3
"""The number of text slots that are tried; those with which the oracle submits come first."""


async def _oracle(subject: ValidationTarget) -> tuple[Trajectory, ...]:
    try:
        return tuple(play for play in await subject.played("oracle") if play.failure is None)
    except NotApplicable:
        return ()


@dataclass(frozen=True, slots=True)
class ProbeSite:
    """A task on which tricks are tried."""

    row: TaskRow
    tools: tuple[ToolSpec, ...]
    slots: Sequence[Slot]
    """The slots for texts; those with which the oracle submits come first."""
    end: Sequence[Action]
    """The actions that submit its episode without an answer."""

    def handed_in(self, slot: Slot, *texts: str) -> list[Action]:
        """Return the actions that put texts into a slot and then end the episode."""
        return [slot.fill(*texts), *([] if slot.submits else self.end)]


async def _grounds(subject: ValidationTarget, oracle: Sequence[Trajectory], count: int = TASKS) -> list[ProbeSite]:
    found = []
    for row in subject.few(count):
        tools = await subject.tools_of(row)
        slots = text_slots(tools, subject.info.gradable, oracle)
        found.append(ProbeSite(row, tools, slots, finishing(tools, subject.info.gradable, oracle)))
    return found


async def _written(subject: ValidationTarget, oracle: Sequence[Trajectory]) -> list[ProbeSite]:
    """Return the sites that have a slot for texts.

    Raises:
        NotApplicable: no task has one.
    """
    found = [ground for ground in await _grounds(subject, oracle) if ground.slots]
    if not found:
        raise NotApplicable("no tool takes a text, and no final message is graded")
    return found


def _named(slot: Slot) -> str:
    return slot.tool or "final message"


async def _tricks(
    subject: ValidationTarget,
    name: str,
    tricks: Iterable[tuple[TaskRow, Sequence[Action], str]],
    *,
    everywhere: bool = False,
) -> list[Evidence]:
    """Play tricks and return evidence of those that earn a reward.

    A trick counts if its average reward over the tasks reaches the margin above chance. With `everywhere`, each of its
    rewards must reach it, on at least `TASKS` tasks.

    Raises:
        NotApplicable: earlier checks found that rewards are available for nothing.
    """
    if for_nothing := subject.failed & {"floor-gap", "seed-variation"}:
        raise NotApplicable(f"nothing has to be solved to be paid (see `{min(for_nothing)}`)")
    earned: dict[str, list[tuple[float, Evidence]]] = {}
    for row, actions, told in tricks:
        script = Script(row.split, row.id, subject.seed_of(row), tuple(actions), name)
        try:
            transcript = await subject.perform(script)
        except LudusError:
            continue
        if (value := subject.total(transcript)) is not None:
            earned.setdefault(told, []).append((value, evidence_of(script, f"earned {value:g} by {told}")))

    def paid(values: Sequence[float]) -> bool:
        if everywhere and len(values) < TASKS:
            return False
        worth = min(values) if everywhere else math.fsum(values) / len(values)
        return subject.share(worth) >= subject.settings.margin

    return [
        where
        for found in earned.values()
        if paid([value for value, _ in found])
        for value, where in found
        if value > subject.chance
    ]


async def _filled(subject: ValidationTarget, name: str, fillings: Sequence[str]) -> list[Evidence]:
    """Put texts where answers go, and return evidence of those that earn a reward."""
    tricks = [
        (ground.row, ground.handed_in(slot, text), f"{_named(slot)}: {short(text, 60)!r}")
        for ground in await _written(subject, await _oracle(subject))
        for slot in ground.slots[:SLOTS]
        for text in fillings
    ]
    return await _tricks(subject, name, tricks)


@suite.check("gameability:stuffing", "Naming all answers at once is not paid", "statistical.gameability_gap")
async def stuffing(subject: ValidationTarget) -> AsyncIterator[Problem]:
    oracle = await _oracle(subject)
    tricks = []
    for ground in await _written(subject, oracle):
        for slot in ground.slots[:SLOTS]:
            known = answers(oracle, slot)
            for text in texts.stuffed(known):
                tricks.append((ground.row, ground.handed_in(slot, text), f"{_named(slot)}: {short(text, 60)!r}"))
            if 1 < len(every := texts.everything(known)) <= slot.takes:
                told = f"{_named(slot)}: a list of {short(', '.join(every), 60)!r}"
                tricks.append((ground.row, ground.handed_in(slot, *every), told))
    if paid := await _tricks(subject, "stuffing", tricks):
        yield error(
            "an answer that names everything is paid: compare the whole answer, not whether it holds the right one",
            paid,
        )


@suite.check("gameability:fragments", "A letter of the right answer is not paid", "statistical.gameability_gap")
async def fragments(subject: ValidationTarget) -> AsyncIterator[Problem]:
    oracle = {(play.split, play.task.id): play for play in await subject.played("oracle") if play.failure is None}
    tricks = []
    for ground in await _grounds(subject, tuple(oracle.values()), 2 * TASKS):
        play = oracle.get((ground.row.split, ground.row.id))
        for slot in [slot for slot in ground.slots if slot.submits and play is not None][:SLOTS]:
            for answer in answers([play] if play is not None else (), slot)[-1:]:
                for number, letter in enumerate(texts.letters(answer), 1):
                    told = f"{_named(slot)}: letter {number} from within the right answer"
                    tricks.append((ground.row, ground.handed_in(slot, letter), told))
    if not tricks:
        raise NotApplicable("the oracle hands in no words or numbers of three letters or digits")
    if paid := await _tricks(subject, "fragments", tricks, everywhere=True):
        yield error("a letter of the right answer is paid: compare the whole answer, not whether it is a part", paid)


@suite.check("gameability:formatting", "A form without content is not paid", "statistical.adversarial_floor")
async def formatting(subject: ValidationTarget) -> AsyncIterator[Problem]:
    if paid := await _filled(subject, "formatting", texts.WRAPPINGS):
        yield error("headings, boxes and empty tags are paid: reward what stands in the form, not the form", paid)


@suite.check("gameability:echo", "Repeating the task is not paid", "statistical.adversarial_floor")
async def echo(subject: ValidationTarget) -> AsyncIterator[Problem]:
    prompts = await _prompts(subject)
    tricks = [
        (ground.row, ground.handed_in(slot, prompts.get((ground.row.split, ground.row.id), "")), told)
        for ground in await _written(subject, await _oracle(subject))
        for slot in ground.slots[:SLOTS]
        for told in (f"{_named(slot)}: the prompt",)
    ]
    if paid := await _tricks(subject, "echo", tricks):
        yield error("the prompt is paid when it is handed in as the answer: what it holds must not be enough", paid)


async def _prompts(subject: ValidationTarget) -> dict[tuple[str, str], str]:
    return {(play.split, play.task.id): prompt_of(play) for play in await subject.played("no-op")}


@suite.check("gameability:injection", "A judge is not talked into a score", "statistical.adversarial_floor")
async def injection(subject: ValidationTarget) -> AsyncIterator[Problem]:
    if paid := await _filled(subject, "injection", texts.ORDERS):
        yield error(
            "an order to the grader is paid: fence the candidate's text as data, and demand a verdict with a reason "
            "(`ludus.server.rewards.Judge` does both)",
            paid,
        )


@suite.check("gameability:test-runner", "Code that ends or changes its tests is not paid",
             "statistical.adversarial_floor")  # fmt: skip
async def test_runner(subject: ValidationTarget) -> AsyncIterator[Problem]:
    prompts = await _prompts(subject)
    oracle = await _oracle(subject)
    tricks = _sabotages(subject, oracle)
    for ground in [ground for ground in await _grounds(subject, oracle) if ground.slots]:
        programs = texts.programs(prompts.get((ground.row.split, ground.row.id), ""))
        for slot in dict.fromkeys([*command_slots(ground.slots), *ground.slots[:SLOTS]]):
            for code in programs:
                for text in (code, f"```python\n{code}```") if slot.submits else (code,):
                    tricks.append((ground.row, ground.handed_in(slot, text), f"{_named(slot)}: {short(text, 60)!r}"))
    if not tricks:
        raise NotApplicable("no tool takes a text, and no final message is graded")
    if paid := await _tricks(subject, "test-runner", tricks):
        yield error(
            "code that ends or changes its tests earns a reward: do not trust the exit code or the "
            "objects of a process that imports the policy's code; take values out of it and compare them elsewhere "
            "(`ludus.server.rewards.FunctionTests`, or `call_function` in a grader of your own)",
            paid,
        )


def _sabotages(subject: ValidationTarget, oracle: Sequence[Trajectory]) -> list[tuple[TaskRow, Sequence[Action], str]]:
    """Return the oracle's actions on some tasks with sabotaged programs, which solve nothing."""
    chosen = {(row.split, row.id): row for row in subject.few(TASKS)}
    found: list[tuple[TaskRow, Sequence[Action], str]] = []
    for play in oracle:
        row = chosen.get((play.split, play.task.id))
        actions = script_of(play).actions
        for place, action in enumerate(actions if row is not None else ()):
            for key, text in texts_of(action):
                for number, spoiled in enumerate(texts.sabotaged(text), 1):
                    changed = (*actions[:place], with_text(action, key, spoiled), *actions[place + 1 :])
                    assert row is not None
                    found.append((row, changed, f"the oracle's program, spoiled in way {number}"))
    return found


@suite.check("gameability:verifier-files", "What the verifier reads cannot be forged", "runtime.oracle_containment")
async def verifier_files(subject: ValidationTarget) -> AsyncIterator[Problem]:
    tricks: list[tuple[TaskRow, Sequence[Action], str]] = []
    for ground in await _grounds(subject, await _oracle(subject)):
        for slot in command_slots(ground.slots):
            for command in texts.COMMANDS:
                for text in (command, _from_python(command)):
                    tricks.append((ground.row, [slot.fill(text), *ground.end], f"{slot.tool}: {short(text, 60)!r}"))
        for tool, path, content in file_tools(ground.tools):
            for prefix in ("", "tests/", "../"):
                for files in (texts.FILES[n : n + AT_ONCE] for n in range(0, len(texts.FILES), AT_ONCE)):
                    writes = [Call(tool, {path: prefix + name, content: held}) for name, held in files]
                    told = f"{tool}: {', '.join(prefix + name for name, _ in files)}"
                    tricks.append((ground.row, [*writes, *ground.end], told))
    if not tricks:
        raise NotApplicable("no tool runs commands or writes files")
    if paid := await _tricks(subject, "verifier-files", tricks):
        yield error(
            "files that the policy wrote decide its reward: grade in a sandbox of the verifier's own "
            '(`verifier_sandbox = "separate"`), with its tests written there',
            paid,
        )


def _from_python(command: str) -> str:
    return f"import subprocess\nsubprocess.run({command!r}, shell=True)\n"


@suite.check("gameability:numbers", "Numbers at the ends of what can be written are not paid",
             "runtime.reward_well_formed")  # fmt: skip
async def numbers(subject: ValidationTarget) -> AsyncIterator[Problem]:
    oracle = await _oracle(subject)
    tricks: list[tuple[TaskRow, Sequence[Action], str]] = []
    for ground in await _grounds(subject, oracle):
        for place in number_slots(ground.tools, oracle):
            for number in texts.NUMBERS:
                told = f"{place.tool}({place.argument}={short(repr(number), 30)})"
                tricks.append((ground.row, [place.fill(number), *ground.end], told))
        for slot in ground.slots[:SLOTS]:
            for text in texts.NUMBER_TEXTS:
                tricks.append((ground.row, ground.handed_in(slot, text), f"{_named(slot)}: {short(text, 30)!r}"))
    if not tricks:
        raise NotApplicable("no tool takes a number or a text, and no final message is graded")
    if paid := await _tricks(subject, "numbers", tricks):
        yield error(
            "NaN, infinities or huge numbers are paid: refuse what is not finite, and compare so that NaN loses", paid
        )


@suite.check("gameability:repetition", "Doing a paid action again is not paid again", "statistical.gameability_gap")
async def repetition(subject: ValidationTarget) -> AsyncIterator[Problem]:
    exploited_by_repetition: list[Evidence] = []
    for play in (await _oracle(subject))[: 2 * TASKS]:
        script = subject.script(play)
        tried: list[Action] = []
        for place, action in enumerate(script.actions[:-1] or script.actions):
            if action in tried or isinstance(action, Answer) or not _pays(play, place):
                continue
            tried.append(action)
            if where := await _farmed(subject, script, place):
                exploited_by_repetition.append(where)
                break
    if exploited_by_repetition:
        yield error("an action is paid each time it is done: pay for what is new only", exploited_by_repetition)


def _pays(play: Trajectory, place: int) -> bool:
    rewards = [step.reward for step in play.steps]
    return place < len(rewards) and (reward := rewards[place]) is not None and (reward.value or 0.0) > 0


async def _farmed(subject: ValidationTarget, script: Script, place: int) -> Evidence | None:
    """Repeat an action, and return evidence if this earns too much.

    It is too much if it exceeds the best reward, or if it reaches the best reward without solving the task.
    """

    def repeated(times: int) -> Script:
        actions = (*script.actions[:place], *[script.actions[place]] * times)
        return Script(script.split, script.task, script.seed, actions, "repetition")

    times = AGAIN
    once, again = await _value(subject, repeated(1)), await _value(subject, repeated(times))
    if once is None or again is None or again <= once:
        return None
    most = subject.top + subject.tolerance
    each = (again - once) / (times - 1)
    if again <= most and (needed := times + 1 + math.ceil((most - again) / each)) <= FARTHEST:
        further = await _value(subject, repeated(needed))
        if further is not None and further > again:
            times, again = needed, further
    # If the oracle repeats the action too, repetition is the way to solve the task and may earn the best reward.
    solves = script.actions.count(script.actions[place]) > 1
    if again > most or (not solves and subject.share(again) >= max(1.0, 3 * subject.share(once))):
        tool = getattr(script.actions[place], "tool", "")
        return evidence_of(repeated(times), f"{tool} once earned {once:g}, {times} times {again:g}")
    return None


async def _value(subject: ValidationTarget, script: Script) -> float | None:
    try:
        return subject.total(await subject.perform(script))
    except LudusError:
        return None


@suite.check("gameability:early-exit", "Giving up is not paid", "semantic.floor_gap")
async def early_exit(subject: ValidationTarget) -> AsyncIterator[Problem]:
    if paid := await _filled(subject, "early-exit", texts.GIVING_UP):
        yield error("giving up is paid: a check that finds nothing must not count as one that passes", paid)
