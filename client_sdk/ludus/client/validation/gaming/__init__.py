"""Rewards that can be had without solving the task: each probe is a trick that must stay near chance."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final

from ludus.client.trajectory import Trajectory
from ludus.client.validation.checks import Evidence, NotApplicable, Problem, Suite, error, short
from ludus.client.validation.gaming import texts
from ludus.client.validation.gaming.slots import (
    answers,
    command_slots,
    file_tools,
    finishing,
    number_slots,
    text_slots,
)
from ludus.client.validation.subject import Subject, evidence_of
from ludus.client.validation.transcripts import Action, Script, Transcript, prompt_of
from ludus.protocol.actions import Answer, Call
from ludus.protocol.episodes import TaskRow
from ludus.protocol.errors import LudusError

suite = Suite()

TASKS: Final = 3
"""Tasks on which each trick is tried."""

AGAIN: Final = 12
"""How often an action that was paid is repeated."""

SLOTS: Final = 3
"""Places for texts that are tried, those by which the oracle hands in first."""


async def _oracle(subject: Subject) -> tuple[Trajectory, ...]:
    try:
        return tuple(play for play in await subject.played("oracle") if play.failure is None)
    except NotApplicable:
        return ()


async def _tricks(
    subject: Subject, name: str, tricks: Iterable[tuple[TaskRow, Sequence[Action], str]]
) -> list[Evidence]:
    """The tricks that are paid, on most of the tasks where they were tried."""
    if for_nothing := subject.failed & {"floor-gap", "seed-variation"}:
        raise NotApplicable(f"nothing has to be solved to be paid (see `{min(for_nothing)}`)")
    earned: dict[str, list[tuple[float, Evidence]]] = {}
    for row, actions, told in tricks:
        script = Script(row.split, row.id, subject.seed_of(row), tuple(actions), name)
        try:
            transcript = await subject.perform(script)
        except LudusError:
            continue
        if (value := _total(transcript)) is not None:
            earned.setdefault(told, []).append((value, evidence_of(script, f"earned {value:g} by {told}")))
    return [
        where
        for found in earned.values()
        if subject.share(math.fsum(value for value, _ in found) / len(found)) >= subject.settings.margin
        for value, where in found
        if value > subject.chance
    ]


def _total(transcript: Transcript) -> float | None:
    value = dict(transcript.events)["total"]["value"]
    return None if value is None else float(value)


async def _filled(subject: Subject, name: str, fillings: Sequence[str], *, own: bool = False) -> list[Evidence]:
    """The texts that are paid when they are put where answers go."""
    oracle = await _oracle(subject)
    slots = text_slots(subject.info.tools, subject.info.gradable, oracle)[:SLOTS]
    if not slots:
        raise NotApplicable("no tool takes a text, and no final message is graded")
    tricks = []
    for row in subject.few(TASKS):
        for slot in slots:
            for text in [*(texts.stuffed(answers(oracle, slot)) if own else ()), *fillings]:
                actions: list[Action] = [slot.fill(text)]
                if slot.tool is not None and not slot.submits:
                    actions += finishing(subject.info.tools, subject.info.gradable, oracle)
                tricks.append((row, actions, f"{slot.tool or 'final message'}: {short(text, 60)!r}"))
    return await _tricks(subject, name, tricks)


@suite.check("gameability:stuffing", "Naming all answers at once is not paid", "statistical.gameability_gap")
async def stuffing(subject: Subject) -> AsyncIterator[Problem]:
    if paid := await _filled(subject, "stuffing", (), own=True):
        yield error(
            "an answer that names everything is paid: compare the whole answer, not whether it holds the right one",
            paid,
        )


@suite.check("gameability:formatting", "A form without content is not paid", "statistical.adversarial_floor")
async def formatting(subject: Subject) -> AsyncIterator[Problem]:
    if paid := await _filled(subject, "formatting", texts.WRAPPINGS):
        yield error("headings, boxes and empty tags are paid: reward what stands in the form, not the form", paid)


@suite.check("gameability:echo", "Repeating the task is not paid", "statistical.adversarial_floor")
async def echo(subject: Subject) -> AsyncIterator[Problem]:
    oracle = await _oracle(subject)
    slots = text_slots(subject.info.tools, subject.info.gradable, oracle)[:SLOTS]
    if not slots:
        raise NotApplicable("no tool takes a text, and no final message is graded")
    prompts = await _prompts(subject)
    tricks = []
    for row in subject.few(TASKS):
        for slot in slots:
            actions: list[Action] = [slot.fill(prompts.get((row.split, row.id), ""))]
            if slot.tool is not None and not slot.submits:
                actions += finishing(subject.info.tools, subject.info.gradable, oracle)
            tricks.append((row, actions, f"{slot.tool or 'final message'}: the prompt"))
    if paid := await _tricks(subject, "echo", tricks):
        yield error("the prompt is paid when it is handed in as the answer: what it holds must not be enough", paid)


async def _prompts(subject: Subject) -> dict[tuple[str, str], str]:
    return {(play.split, play.task.id): prompt_of(play) for play in await subject.played("no-op")}


@suite.check("gameability:injection", "A judge is not talked into a score", "statistical.adversarial_floor")
async def injection(subject: Subject) -> AsyncIterator[Problem]:
    if paid := await _filled(subject, "injection", texts.ORDERS):
        yield error(
            "an order to the grader is paid: fence the candidate's text as data, and demand a verdict with a reason "
            "(`ludus.server.rewards.Judge` does both)",
            paid,
        )


@suite.check("gameability:test-runner", "Code that ends or changes its tests is not paid",
             "statistical.adversarial_floor")  # fmt: skip
async def test_runner(subject: Subject) -> AsyncIterator[Problem]:
    oracle = await _oracle(subject)
    slots = text_slots(subject.info.tools, subject.info.gradable, oracle)
    if not slots:
        raise NotApplicable("no tool takes a text, and no final message is graded")
    prompts = await _prompts(subject)
    chosen = list(dict.fromkeys([*command_slots(slots), *slots[:SLOTS]]))
    tricks = []
    for row in subject.few(TASKS):
        for slot in chosen:
            for code in texts.programs(prompts.get((row.split, row.id), "")):
                for text in (code, f"```python\n{code}```") if slot.submits else (code,):
                    actions: list[Action] = [slot.fill(text)]
                    if not slot.submits:
                        actions += finishing(subject.info.tools, subject.info.gradable, oracle)
                    tricks.append((row, actions, f"{slot.tool or 'final message'}: {short(text, 60)!r}"))
    if paid := await _tricks(subject, "test-runner", tricks):
        yield error(
            "code is paid that ends or changes the tests instead of passing them: run it in another process than the "
            "tests, and take nothing but compared values for a pass (`ludus.server.rewards.CodeTests`)",
            paid,
        )


@suite.check("gameability:verifier-files", "What the verifier reads cannot be forged", "runtime.oracle_containment")
async def verifier_files(subject: Subject) -> AsyncIterator[Problem]:
    oracle = await _oracle(subject)
    slots = command_slots(text_slots(subject.info.tools, subject.info.gradable, oracle))
    writers = file_tools(subject.info.tools)
    if not slots and not writers:
        raise NotApplicable("no tool runs commands or writes files")
    end = finishing(subject.info.tools, subject.info.gradable, oracle)
    tricks: list[tuple[TaskRow, Sequence[Action], str]] = []
    for row in subject.few(TASKS):
        for slot in slots:
            for command in texts.COMMANDS:
                for text in (command, _from_python(command)):
                    tricks.append((row, [slot.fill(text), *end], f"{slot.tool}: {short(text, 60)!r}"))
        for tool, path, content in writers:
            for prefix in ("", "tests/", "../"):
                writes: list[Action] = [Call(tool, {path: prefix + name, content: held}) for name, held in texts.FILES]
                tricks.append((row, [*writes, *end], f"{tool}: files that verifiers read, in {prefix or './'}"))
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
async def numbers(subject: Subject) -> AsyncIterator[Problem]:
    oracle = await _oracle(subject)
    places = number_slots(subject.info.tools, oracle)
    slots = text_slots(subject.info.tools, subject.info.gradable, oracle)[:SLOTS]
    if not places and not slots:
        raise NotApplicable("no tool takes a number or a text, and no final message is graded")
    end = finishing(subject.info.tools, subject.info.gradable, oracle)
    tricks: list[tuple[TaskRow, Sequence[Action], str]] = []
    for row in subject.few(TASKS):
        for place in places:
            for number in texts.NUMBERS:
                told = f"{place.tool}({place.argument}={short(repr(number), 30)})"
                tricks.append((row, [place.fill(number), *end], told))
        for slot in slots:
            for text in texts.NUMBER_TEXTS:
                actions = [slot.fill(text), *([] if slot.submits else end)]
                tricks.append((row, actions, f"{slot.tool or 'final message'}: {short(text, 30)!r}"))
    if paid := await _tricks(subject, "numbers", tricks):
        yield error(
            "NaN, infinities or huge numbers are paid: refuse what is not finite, and compare so that NaN loses", paid
        )


@suite.check("gameability:repetition", "Doing a paid action again is not paid again", "statistical.gameability_gap")
async def repetition(subject: Subject) -> AsyncIterator[Problem]:
    farmed: list[Evidence] = []
    for play in (await _oracle(subject))[: 2 * TASKS]:
        script = subject.script(play)
        for place, action in enumerate(script.actions[:-1] or script.actions):
            if isinstance(action, Answer) or not _pays(play, place):
                continue
            before = script.actions[:place]
            once = await _value(subject, script, (*before, action))
            again = await _value(subject, script, (*before, *[action] * AGAIN))
            if once is not None and again is not None and _farmed(subject, once, again):
                told = f"{action.tool} once earned {once:g}, {AGAIN} times {again:g}"
                farmed.append(evidence_of(script, told))
                break
    if farmed:
        yield error("an action is paid each time it is done: pay for what is new only", farmed)


def _pays(play: Trajectory, place: int) -> bool:
    rewards = [step.reward for step in play.steps]
    return place < len(rewards) and (reward := rewards[place]) is not None and (reward.value or 0.0) > 0


def _farmed(subject: Subject, once: float, again: float) -> bool:
    """Whether the repetitions were paid, by more than the way to the end is worth."""
    return again > once and (again > subject.top + 1e-6 or subject.share(again) >= max(1.0, 3 * subject.share(once)))


async def _value(subject: Subject, script: Script, actions: tuple[Action, ...]) -> float | None:
    try:
        return _total(await subject.perform(Script(script.split, script.task, script.seed, actions, "repetition")))
    except LudusError:
        return None


@suite.check("gameability:early-exit", "Giving up is not paid", "semantic.floor_gap")
async def early_exit(subject: Subject) -> AsyncIterator[Problem]:
    if paid := await _filled(subject, "early-exit", texts.GIVING_UP):
        yield error("giving up is paid: a check that finds nothing must not count as one that passes", paid)
