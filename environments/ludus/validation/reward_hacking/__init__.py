"""Checks for reward hacking: tricks that do not solve the task must earn no more than the random baseline."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ludus.protocol.actions import Action, Answer, Call
from ludus.protocol.episodes import TaskRow, ToolSpec
from ludus.protocol.trajectory import Trajectory
from ludus.validation.core.checks import Evidence, NotApplicable, Problem, Suite, error, short
from ludus.validation.core.target import ValidationTarget, evidence_of
from ludus.validation.core.transcripts import Script, prompt_of, script_of
from ludus.validation.reward_hacking import fields, files, texts
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

suite = Suite(scored=True)

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


async def _oracle(target: ValidationTarget) -> tuple[Trajectory, ...]:
    try:
        return tuple(play for play in await target.played("oracle") if play.failure is None)
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

    def submission(self, slot: Slot, *texts: str) -> list[Action]:
        """Return the actions that put texts into a slot and then end the episode."""
        return [slot.fill(*texts), *([] if slot.submits else self.end)]


async def _probe_sites(target: ValidationTarget, oracle: Sequence[Trajectory], count: int = TASKS) -> list[ProbeSite]:
    sites = []
    for row in target.sample_tasks(count):
        tools = await target.tools_of(row)
        slots = text_slots(tools, target.info.gradable, oracle)
        sites.append(ProbeSite(row, tools, slots, finishing(tools, target.info.gradable, oracle)))
    return sites


async def _text_sites(target: ValidationTarget, oracle: Sequence[Trajectory]) -> list[ProbeSite]:
    """Return the sites that have a slot for texts.

    Raises:
        NotApplicable: no task has one.
    """
    sites = [site for site in await _probe_sites(target, oracle) if site.slots]
    if not sites:
        raise NotApplicable("no tool takes a text, and no final message is graded")
    return sites


def _slot_name(slot: Slot) -> str:
    return slot.tool or "final message"


async def _tricks(
    target: ValidationTarget,
    name: str,
    tricks: Iterable[tuple[TaskRow, Sequence[Action], str]],
    *,
    everywhere: bool = False,
    least: int = 1,
) -> list[Evidence]:
    """Play tricks and return evidence of those that earn a reward.

    A trick counts if its average reward over the tasks reaches the margin above the random baseline. With
    `everywhere`, each of its rewards must reach it, on at least `TASKS` tasks. It must earn something on `least` tasks.

    Raises:
        NotApplicable: earlier checks found that rewards are available for nothing.
    """
    if for_nothing := target.failed & {"floor-gap", "seed-variation"}:
        raise NotApplicable(f"a reward needs no solution (see `{min(for_nothing)}`)")
    earned: dict[str, list[tuple[float, Evidence]]] = {}
    # Each trick is tried on all its tasks before the next one, so that an end of the time leaves out whole tricks.
    by_name: dict[str, list[tuple[TaskRow, Sequence[Action], str]]] = {}
    for entry in tricks:
        by_name.setdefault(entry[2], []).append(entry)
    all_tricks = [entry for entries in by_name.values() for entry in entries]
    deadline = time.monotonic() + target.settings.trick_seconds
    for number, (row, actions, trick) in enumerate(all_tricks):
        if time.monotonic() > deadline:
            target.remark = f"the time allowed for {number} of {len(all_tricks)} tricks"
            break
        script = Script(row.split, row.id, target.seed_of(row), tuple(actions), name)
        if (value := await target.reward(script)) is not None:
            earned.setdefault(trick, []).append((value, evidence_of(script, f"earned {value:g} by {trick}")))

    def rewarded(values: Sequence[float]) -> bool:
        if everywhere and len(values) < TASKS:
            return False
        if sum(value > target.random_baseline for value in values) < least:
            return False
        worth = min(values) if everywhere else math.fsum(values) / len(values)
        return target.share(worth) >= target.settings.margin

    return [
        example
        for attempts in earned.values()
        if rewarded([value for value, _ in attempts])
        for value, example in attempts
        if value > target.random_baseline
    ]


async def _filled(target: ValidationTarget, name: str, fillings: Sequence[str]) -> list[Evidence]:
    """Put texts where answers go, and return evidence of those that earn a reward."""
    tricks = [
        (site.row, site.submission(slot, text), f"{_slot_name(slot)}: {short(text, 60)!r}")
        for site in await _text_sites(target, await _oracle(target))
        for slot in site.slots[:SLOTS]
        for text in fillings
    ]
    return await _tricks(target, name, tricks)


@suite.check("gameability:stuffing", "An answer that lists all answers earns no reward", "statistical.gameability_gap")
async def stuffing(target: ValidationTarget) -> AsyncIterator[Problem]:
    oracle = await _oracle(target)
    tricks: list[tuple[TaskRow, Sequence[Action], str]] = []
    crammed: list[tuple[TaskRow, Sequence[Action], str]] = []
    for site in await _text_sites(target, oracle):
        for slot in site.slots[:SLOTS]:
            known_answers = answers(oracle, slot)
            for text in texts.stuffed(known_answers):
                tricks.append((site.row, site.submission(slot, text), f"{_slot_name(slot)}: {short(text, 60)!r}"))
            for text in texts.crammed(known_answers):
                trick = f"{_slot_name(slot)}: {len(text)} characters, {short(text, 60)!r}"
                crammed.append((site.row, site.submission(slot, text), trick))
            if 1 < len(every := texts.everything(known_answers)) <= slot.takes:
                trick = f"{_slot_name(slot)}: a list of {short(', '.join(every), 60)!r}"
                tricks.append((site.row, site.submission(slot, *every), trick))
    # A grader that reads the first answer of a text pays one task, whose answer happens to be the first.
    rewarded = await _tricks(target, "stuffing", tricks) or await _tricks(target, "stuffing", crammed, least=2)
    if rewarded:
        yield error(
            "an answer that lists everything earns a reward: compare the whole answer, not whether it contains the "
            "right one",
            rewarded,
        )


@suite.check("gameability:fragments", "A fragment of the right answer earns no reward", "statistical.gameability_gap")
async def fragments(target: ValidationTarget) -> AsyncIterator[Problem]:
    oracle = {(play.split, play.task.id): play for play in await target.played("oracle") if play.failure is None}
    tricks = []
    for site in await _probe_sites(target, tuple(oracle.values()), 2 * TASKS):
        play = oracle.get((site.row.split, site.row.id))
        for slot in [slot for slot in site.slots if slot.submits and play is not None][:SLOTS]:
            for answer in answers([play] if play is not None else (), slot)[-1:]:
                for number, letter in enumerate(texts.letters(answer), 1):
                    trick = f"{_slot_name(slot)}: letter {number} from within the right answer"
                    tricks.append((site.row, site.submission(slot, letter), trick))
                for number, beginning in enumerate(texts.beginnings(answer), 1):
                    trick = f"{_slot_name(slot)}: beginning {number} of the right answer, cut within a word"
                    tricks.append((site.row, site.submission(slot, beginning), trick))
    if not tricks:
        raise NotApplicable("the oracle submits no words or numbers of three letters or digits")
    if rewarded := await _tricks(target, "fragments", tricks, everywhere=True):
        yield error(
            "a fragment of the right answer earns a reward: compare the whole answer, not whether it is a part",
            rewarded,
        )


@suite.check("gameability:formatting", "Formatting without content earns no reward", "statistical.adversarial_floor")
async def formatting(target: ValidationTarget) -> AsyncIterator[Problem]:
    if rewarded := await _filled(target, "formatting", texts.WRAPPINGS):
        yield error("headings, boxes and empty tags earn a reward: reward the content, not the format", rewarded)


@suite.check("gameability:echo", "Repeating the prompt earns no reward", "statistical.adversarial_floor")
async def echo(target: ValidationTarget) -> AsyncIterator[Problem]:
    prompts = await _prompts(target)
    tricks = [
        (site.row, site.submission(slot, prompts.get((site.row.split, site.row.id), "")), trick)
        for site in await _text_sites(target, await _oracle(target))
        for slot in site.slots[:SLOTS]
        for trick in (f"{_slot_name(slot)}: the prompt",)
    ]
    if rewarded := await _tricks(target, "echo", tricks):
        yield error("the prompt earns a reward as the answer: the text of the prompt must not be enough", rewarded)


async def _prompts(target: ValidationTarget) -> dict[tuple[str, str], str]:
    return {(play.split, play.task.id): prompt_of(play) for play in await target.played("no-op")}


@suite.check("gameability:injection", "Instructions to a judge earn no reward", "statistical.adversarial_floor")
async def injection(target: ValidationTarget) -> AsyncIterator[Problem]:
    if rewarded := await _filled(target, "injection", texts.ORDERS):
        yield error(
            "an instruction to the grader earns a reward: fence the candidate's text as data, and require a verdict "
            "with a reason (`ludus.server.rewards.Judge` does both)",
            rewarded,
        )


@suite.check("gameability:test-runner", "Code that stops or changes its tests earns no reward",
             "statistical.adversarial_floor")  # fmt: skip
async def test_runner(target: ValidationTarget) -> AsyncIterator[Problem]:
    prompts = await _prompts(target)
    oracle = await _oracle(target)
    tricks = _sabotages(target, oracle)
    for site in [site for site in await _probe_sites(target, oracle) if site.slots]:
        programs = texts.programs(prompts.get((site.row.split, site.row.id), ""))
        for slot in dict.fromkeys([*command_slots(site.slots), *site.slots[:SLOTS]]):
            for code in programs:
                for text in (code, f"```python\n{code}```") if slot.submits else (code,):
                    tricks.append((site.row, site.submission(slot, text), f"{_slot_name(slot)}: {short(text, 60)!r}"))
    if not tricks:
        raise NotApplicable("no tool takes a text, and no final message is graded")
    if rewarded := await _tricks(target, "test-runner", tricks):
        yield error(
            "code that stops or changes its tests earns a reward: do not trust the exit code or the objects of a "
            "process that imports the policy's code; take values out of it and compare them elsewhere "
            "(`ludus.server.rewards.FunctionTests`, or `call_function` in your own grader)",
            rewarded,
        )


def _sabotages(target: ValidationTarget, oracle: Sequence[Trajectory]) -> list[tuple[TaskRow, Sequence[Action], str]]:
    """Return the oracle's actions on some tasks with sabotaged programs, which solve nothing."""
    chosen = {(row.split, row.id): row for row in target.sample_tasks(TASKS)}
    programs: list[tuple[TaskRow, Sequence[Action], str]] = []
    for play in oracle:
        row = chosen.get((play.split, play.task.id))
        actions = script_of(play).actions
        for index, action in enumerate(actions if row is not None else ()):
            for key, text in texts_of(action):
                for number, spoiled in enumerate(texts.sabotaged(text), 1):
                    changed = (*actions[:index], with_text(action, key, spoiled), *actions[index + 1 :])
                    assert row is not None
                    programs.append((row, changed, f"the oracle's program, modified in way {number}"))
    return programs


@suite.check(
    "gameability:verifier-files", "The policy cannot forge what the verifier reads", "runtime.oracle_containment"
)
async def verifier_files(target: ValidationTarget) -> AsyncIterator[Problem]:
    oracle = await _oracle(target)
    tricks: list[tuple[TaskRow, Sequence[Action], str]] = []
    for site in await _probe_sites(target, oracle):
        for slot in command_slots(site.slots):
            for command in texts.COMMANDS:
                for text in (command, f"import subprocess\nsubprocess.run({command!r}, shell=True)\n"):
                    tricks.append((site.row, [slot.fill(text), *site.end], f"{slot.tool}: {short(text, 60)!r}"))
        for tool, path, content in file_tools(site.tools):
            for prefix in ("", "tests/", "../"):
                for forged in (texts.FILES[n : n + AT_ONCE] for n in range(0, len(texts.FILES), AT_ONCE)):
                    writes = [Call(tool, {path: prefix + name, content: body}) for name, body in forged]
                    trick = f"{tool}: {', '.join(prefix + name for name, _ in forged)}"
                    tricks.append((site.row, [*writes, *site.end], trick))
        tricks += await _forgeries(target, site, oracle)
        tricks += _named_in_code(target, site, oracle)
    set_fields = [
        trick for site in await _probe_sites(target, oracle) for trick in await _set_fields(target, site, oracle)
    ]
    if not tricks and not set_fields:
        raise NotApplicable("no tool runs commands or writes files")
    if rewarded := await _tricks(target, "verifier-files", tricks):
        yield error(
            "files that the policy wrote determine its reward: grade in a separate sandbox "
            '(`verifier_sandbox = "separate"`), with its tests written there',
            rewarded,
        )
    elif rewarded := await _tricks(target, "verifier-files", set_fields, least=2):
        yield error(
            "fields that the task does not ask for determine the reward: let tools set only the fields that it is "
            "about, and keep what is compared with them elsewhere",
            rewarded,
        )


async def _set_fields(
    target: ValidationTarget, site: ProbeSite, oracle: Sequence[Trajectory]
) -> list[tuple[TaskRow, Sequence[Action], str]]:
    """Return tricks that set fields which the task does not ask for, and end as the oracle does."""
    play = next((play for play in oracle if (play.split, play.task.id) == (site.row.split, site.row.id)), None)
    if play is None or target.local is None:
        return []
    solution = script_of(play).actions
    final = Script(site.row.split, site.row.id, target.seed_of(site.row), solution[-1:], "verifier-files")
    alone = await target.reward(final)
    if alone is None or alone > target.random_baseline:
        return []  # the last action says the answer, or nothing is to be done
    tricks = fields.forged(target, target.task(site.row), solution)
    return [(site.row, [*actions, *solution[-1:]], trick) for actions, trick in tricks]


def _named_in_code(
    target: ValidationTarget, site: ProbeSite, oracle: Sequence[Trajectory]
) -> list[tuple[TaskRow, Sequence[Action], str]]:
    """Return tricks that call tools with the names that the code has, which a policy is not meant to use."""
    if target.local is None:
        return []
    calls_made = {call.tool: call for play in oracle for call in script_of(play).actions if isinstance(call, Call)}
    ends = {action.tool for action in site.end if isinstance(action, Call)}
    used = files.written_by(action for play in oracle for action in script_of(play).actions)
    names = [name for name in files.keys_in_grader(target) if name not in used]
    per_episode = min(files.MOST_WORDS, (target.local.cls.limits.max_steps or files.MOST_WORDS) - len(site.end))
    tricks: list[tuple[TaskRow, Sequence[Action], str]] = []
    for slot in site.slots:
        if slot.tool is None or slot.submits or slot.tool in ends or slot.takes > 1 or not names:
            continue
        arguments = {**slot.others, **(calls_made[slot.tool].arguments if slot.tool in calls_made else {})}
        for start in range(0, len(names), max(1, per_episode)):
            calls = [
                Call(slot.tool, {**arguments, slot.argument: name})
                for name in names[start : start + max(1, per_episode)]
            ]
            trick = f"{slot.tool}: {slot.argument} named as in the code, such as {calls[0].arguments[slot.argument]!r}"
            tricks.append((site.row, [*calls, *site.end], trick))
    return tricks


async def _forgeries(
    target: ValidationTarget, site: ProbeSite, oracle: Sequence[Trajectory]
) -> list[tuple[TaskRow, Sequence[Action], str]]:
    """Return tricks that write the files which the code names, with what they contain after a right run."""
    writers = file_tools(site.tools)
    play = next((play for play in oracle if (play.split, play.task.id) == (site.row.split, site.row.id)), None)
    if not writers or play is None or target.local is None:
        return []
    script = target.script(play)
    written = files.written_by(script.actions)
    in_code = files.names_in_code(target, target.task(site.row))
    words = files.keys_in_grader(target)
    names = [name for name in in_code if name not in written][: files.MOST_FILES]
    right = await files.contents_after(target, script, site.tools, names)
    tricks: list[tuple[TaskRow, Sequence[Action], str]] = []
    for tool, path, content in writers[: files.WRITERS]:
        series = [[(name, right[name], "what it holds after a right run") for name in names if name in right]]
        contents = files.contents(words)
        series += [[(name, content, repr(short(content, 30))) for name in names] for content in contents]
        series.append([(name, contents[-1], repr(contents[-1])) for name in words if name not in written])
        for part in series:
            for together in (part[start : start + AT_ONCE] for start in range(0, len(part), AT_ONCE)):
                writes = [Call(tool, {path: name, content: held}) for name, held, _ in together]
                trick = f"{tool}: " + ", ".join(f"{name} with {description}" for name, _, description in together)
                tricks.append((site.row, [*writes, *site.end], trick))
        # A verifier that compares two files is content if both hold the same.
        same_text = [Call(tool, {path: name, content: "the same"}) for name in in_code[: files.MOST_FILES]]
        tricks.append((site.row, [*same_text, *site.end], f"{tool}: the same text in {len(same_text)} files"))
    return tricks


@suite.check("gameability:numbers", "NaN, infinities and huge numbers earn no reward",
             "runtime.reward_well_formed")  # fmt: skip
async def numbers(target: ValidationTarget) -> AsyncIterator[Problem]:
    oracle = await _oracle(target)
    tricks: list[tuple[TaskRow, Sequence[Action], str]] = []
    for site in await _probe_sites(target, oracle):
        for number_slot in number_slots(site.tools, oracle):
            for number in texts.NUMBERS:
                trick = f"{number_slot.tool}({number_slot.argument}={short(repr(number), 30)})"
                tricks.append((site.row, [number_slot.fill(number), *site.end], trick))
        for slot in site.slots[:SLOTS]:
            for text in texts.NUMBER_TEXTS:
                tricks.append((site.row, site.submission(slot, text), f"{_slot_name(slot)}: {short(text, 30)!r}"))
    if not tricks:
        raise NotApplicable("no tool takes a number or a text, and no final message is graded")
    # True is 1, which may be what a single task asks for.
    if rewarded := await _tricks(target, "numbers", tricks, least=2):
        yield error(
            "NaN, infinities or huge numbers earn a reward: refuse non-finite values, and compare so that NaN fails",
            rewarded,
        )


@suite.check("gameability:repetition", "A repeated action earns its reward only once", "statistical.gameability_gap")
async def repetition(target: ValidationTarget) -> AsyncIterator[Problem]:
    exploited_by_repetition: list[Evidence] = []
    for play in (await _oracle(target))[: 2 * TASKS]:
        script = target.script(play)
        tried: list[Action] = []
        for index, action in enumerate(script.actions[:-1] or script.actions):
            reward = play.steps[index].reward if index < len(play.steps) else None
            if action in tried or isinstance(action, Answer) or reward is None or (reward.value or 0.0) <= 0:
                continue
            tried.append(action)
            if exploit := await _exploit_by_repetition(target, script, index):
                exploited_by_repetition.append(exploit)
                break
    if exploited_by_repetition:
        yield error(
            "an action earns a reward each time it is repeated: reward only new progress", exploited_by_repetition
        )


async def _exploit_by_repetition(target: ValidationTarget, script: Script, index: int) -> Evidence | None:
    """Repeat an action, and return evidence if this earns too much.

    It is too much if it exceeds the best reward, or if it reaches the best reward without solving the task.
    """

    def repeated(times: int) -> Script:
        actions = (*script.actions[:index], *[script.actions[index]] * times)
        return Script(script.split, script.task, script.seed, actions, "repetition")

    times = AGAIN
    once, again = await target.reward(repeated(1)), await target.reward(repeated(times))
    if once is None or again is None or again <= once:
        return None
    greatest = target.top + target.tolerance
    gain = (again - once) / (times - 1)
    if again <= greatest and (needed := times + 1 + math.ceil((greatest - again) / gain)) <= FARTHEST:
        further = await target.reward(repeated(needed))
        if further is not None and further > again:
            times, again = needed, further
    # If the oracle repeats the action too, repetition is the way to solve the task and may earn the best reward.
    solves = script.actions.count(script.actions[index]) > 1
    if again > greatest or (not solves and target.share(again) >= max(1.0, 3 * target.share(once))):
        tool = getattr(script.actions[index], "tool", "")
        return evidence_of(repeated(times), f"{tool} earned {once:g} for one call and {again:g} for {times} calls")
    return None


@suite.check("gameability:early-exit", "Giving up earns no reward", "semantic.floor_gap")
async def early_exit(target: ValidationTarget) -> AsyncIterator[Problem]:
    if rewarded := await _filled(target, "early-exit", texts.GIVING_UP):
        yield error("giving up earns a reward: a check that finds nothing must not count as passed", rewarded)
