"""Right answers in other words earn what the oracle earns, and wrong ones in the same words do not."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import pytest
from paraphrasing import Clerk, answers_of, citations_of, entries, office_text, rewritten
from report_styles import Writer, flawed_report
from suite_selection import whole_or_few

from ludus.environments.company.environment import _goal_in_order
from ludus.environments.research.checklist import Grading
from ludus.environments.research.environment import Research, sheet_of
from ludus.environments.research.report import Unreadable, read_report
from ludus.environments.research.writer import title_of
from ludus.environments.search.environment import evidence_of
from ludus.environments.support_desk import oracle as clerks
from ludus.environments.support_desk.environment import case_of
from ludus.environments.support_desk.kinds import IDENTITY
from ludus.environments.workplace.environment import goal_of
from ludus.protocol import Answer, Call, text_of

LEAST: Final = 0.97
"""The share of paraphrased right answers that must earn what the oracle earns."""
EPISODES: Final = whole_or_few(240, 48)
"""The answers of each environment."""
Play = tuple[str, Any]
"""What was written, and the reward."""
pytestmark = pytest.mark.suite("breadth", sample=True)


async def earned(player: Any, name: str, split: str, index: int, policy: Any) -> float:
    """Return what a policy earns."""
    [episode] = await player.start(name, split, index, seed=index)
    await player.play(episode.episode, policy)
    if (await player.info(episode.episode)).status == "running":
        await player.answer(episode.episode, "")
    total, _ = await player.rewards(episode.episode)
    return float(total.value)


def assert_share(plays: list[tuple[str, float]], best: float = 1.0) -> None:
    """Require that nearly all answers earn the most, and that they are many."""
    assert len({text for text, _ in plays}) >= EPISODES * 5 // 6
    lost = [(text, value) for text, value in plays if value < best]
    share = 1 - len(lost) / len(plays)
    listing = "\n".join(f"{value:.2f} {text!r}" for text, value in lost)
    assert share >= LEAST, f"{share:.3f} of {len(plays)} earn {best}; these do not:\n{listing}"


def assert_none(plays: list[tuple[str, float]], best: float = 1.0) -> None:
    """Require that no wrong answer earns the most, and that they are many."""
    assert len({text for text, _ in plays}) >= EPISODES * 5 // 6
    assert [(text, value) for text, value in plays if value >= best] == []


# Mails, comments, notes and documents


def office_plays(player: Any, name: str, file: str, goal_at: Callable[[Any], Any]) -> Iterator[tuple[int, Any, Any]]:
    """Yield tasks with the policy that writes by a template, and the list of its texts."""
    templates = entries(file)
    index = number = 0
    while number < EPISODES:
        task = player.task(name, "train", index)
        goal, case = goal_at(task)
        rng = random.Random(index)
        slots = {"me": goal.me.name, "department": goal.me.department, "today": case.company.today.isoformat(),
                 "n_day": str(getattr(task, "day", 1))}  # fmt: skip
        names = [customer.name for customer in case.company.customers]
        texts: list[str] = []
        change = office_text(templates[number % len(templates)], goal, slots, names, rng)
        if any(change(Call(step.tool, step.arguments)).arguments != step.arguments for step in goal.steps):

            def noted(call: Call, task: Any = task, change: Any = change, texts: list[str] = texts) -> Call:
                changed: Call = change(call)
                if changed.arguments != call.arguments:
                    texts.append(f"{task.id}: {changed.arguments}")
                return changed

            number += 1
            yield index, rewritten(player.oracle(name, "train", index), noted), texts
        index += 1


async def office_results(player: Any, name: str, file: str) -> list[tuple[str, float]]:
    plays = []
    for index, policy, texts in office_plays(player, name, file, goal_of if name == "workplace" else _goal_in_order):
        value = await earned(player, name, "train", index, policy)
        plays.append(("\n".join(texts), value))
    return plays


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["workplace", "company"])
async def test_work_reported_in_other_words_earns_everything(player: Any, name: str) -> None:
    assert_share(await office_results(player, name, name))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["workplace", "company"])
async def test_work_reported_with_wrong_facts_does_not_earn_everything(player: Any, name: str) -> None:
    assert_none(await office_results(player, name, f"{name}-wrong"))


# Messages to a user


def clerk_policy(case: Any, clerk: Clerk, texts: list[str]) -> Any:
    """Work a case as the oracle does, in a clerk's words."""

    def say(message: str) -> Any:
        texts.append(message)
        result = yield Call("reply", {"message": message})
        return text_of(result.content)

    text = yield from say(clerk.identity())
    for name in ("email", "birth") if clerk.asks_again else ():
        if getattr(case.user, name) not in text:
            text += yield from say(clerk.again(name))
    yield Call("find_customers", {"query": case.user.email})
    yield Call("list_records", {"customer_id": case.user.id})
    for number, request in enumerate(case.requests):
        decision = request.decision
        if decision.code == IDENTITY:
            yield from say(clerk.text("which", noun=case.domain.noun))
        else:
            yield Call("show_record", {"record_id": request.id})
            if decision.code != "OWNER":
                slots = list(request.ask.says)
                for start in range(0, len(slots), 2):
                    yield from say(clerk.questions(slots[start : start + 2]))
        if decision.outcome == "granted":
            first = request.kind.decide(case.policy, request.owner, request.ask, request.ask.wish)
            do = clerks.PROPOSALS[request.kind.tool]
            answer = yield from say(clerk.proposal(do, request.id, {**request.ask.wish, **first.arguments}))
            if not answer.startswith("Yes"):
                values = {**request.ask.wish, **request.wish, **decision.arguments}
                yield from say(clerk.proposal(do, request.id, values))
            yield Call(request.kind.tool, {case.domain.id_parameter: request.id, **decision.arguments})
        elif decision.outcome == "refused":
            yield Call("log_refusal", {"record_id": request.id, "rule": decision.code})
        else:
            yield Call("escalate", {"record_id": request.id, "team": decision.code})
        answer = ""
        for _ in range(5):
            answer = yield from say(clerk.announcement(decision.outcome, decision.code, decision.figures))
            if not any(word in answer for word in ("exception", "not accept that", "Other companies")):
                break
        if number + 1 < len(case.requests) and "one more thing" not in answer:
            yield from say(clerk.text("else"))
    yield Call("end_conversation", {"message": clerk.text("goodbye")})


async def desk_results(player: Any, wrong: list[dict[str, Any]]) -> list[tuple[str, float]]:
    plays = []
    for index in range(EPISODES):
        case = case_of(player.task("support_desk", "train", index))
        flaw = wrong[index % len(wrong)] if wrong else None
        if flaw is not None and not concerned(case, flaw):
            continue
        texts: list[str] = []
        policy = clerk_policy(case, Clerk(random.Random(index), flaw), texts)
        value = await earned(player, "support_desk", "train", index, policy)
        plays.append(("\n".join(texts), value))
    return plays


def concerned(case: Any, flaw: dict[str, Any]) -> bool:
    """Return whether a flaw changes what is said in a case."""
    decisions = [one.decision for one in case.requests]
    if flaw["part"] == "proposal":
        return any(one.outcome == "granted" and one.arguments for one in decisions)
    if flaw["part"] == "questions":
        return any(one.kind.first and one.decision.code not in (IDENTITY, "OWNER") for one in case.requests)
    return flaw["part"] == "identity" or any(
        set(map(str, one.figures)) - set(map(str, one.arguments.values())) for one in decisions
    )


@pytest.mark.timeout(300)
async def test_a_case_worked_in_other_words_earns_everything(player: Any) -> None:
    assert_share(await desk_results(player, []))


@pytest.mark.timeout(300)
async def test_a_case_worked_with_a_flaw_in_the_words_does_not_earn_everything(player: Any) -> None:
    plays = await desk_results(player, entries("support_desk-wrong"))
    assert len(plays) >= EPISODES * 5 // 8
    assert [(text, value) for text, value in plays if value >= 1.0] == []


# Answers with citations


def search_policy(task: Any, answer: str, cite: Callable[[list[str], list[str]], list[str]]) -> Any:
    """Open the proof as the oracle does, and submit an answer with citations in another form."""
    titles = [need[0] for need in evidence_of(task)]
    codes = []
    for title in titles:
        result = yield Call("open", {"page": title})
        codes.append(text_of(result.content).partition("[id: ")[2][:4])
    result = yield Call("submit", {"answer": answer, "citations": cite(codes, titles)})
    if not result.ended:
        yield Answer("")


async def search_results(player: Any, file: str) -> list[tuple[str, float]]:
    styles = next(one["styles"] for one in entries("search") if one["form"] == "citations")
    plays = []
    for index in range(EPISODES // 4):
        task = player.task("search", "validation", index)
        rng = random.Random(index)
        other = {"name": "Nowhere", "date": "1 January 1700"}.get(task.form, "1" if task.solution != "1" else "2")
        for at, text in enumerate(
            rng.sample(answers_of(task.form, task.solution, other, file), 8 if file == "search" else 6)
        ):
            style = styles[(index + at) % len(styles)]
            policy = search_policy(task, text, partial(citations_of, style, rng))
            value = await earned(player, "search", "validation", index, policy)
            plays.append((f"{task.id} {text!r} {style} {task.solution}", value))
    return plays


@pytest.mark.timeout(300)
async def test_an_answer_in_another_form_earns_everything(player: Any) -> None:
    assert_share(await search_results(player, "search"))


@pytest.mark.timeout(300)
async def test_an_answer_that_is_wrong_or_one_of_several_earns_nothing(player: Any) -> None:
    plays = await search_results(player, "search-wrong")
    assert [(text, value) for text, value in plays if value > 0] == []


# Reports


def graded(sheet: Any, text: str) -> float:
    """Return what a report earns with all pages opened."""
    codes = {code: page for page, code in enumerate(sheet.archive.codes)}
    try:
        report = read_report(text)
    except Unreadable:
        return 0.0
    return round(Grading(sheet, report, title_of(sheet), set(codes.values()), codes).value, 12)


@pytest.mark.timeout(300)
def test_a_right_report_in_another_layout_earns_everything() -> None:
    plays = []
    for index in range(EPISODES):
        sheet = sheet_of(Research.load_task("validation", index // 4))
        text = Writer(sheet, random.Random(index)).report()
        plays.append((text, graded(sheet, text)))
    assert_share([(text[:60] + text[-400:] + str(index), value) for index, (text, value) in enumerate(plays)])


@pytest.mark.timeout(300)
def test_a_report_with_flaws_does_not_earn_everything() -> None:
    plays = []
    flaws = [(one["flaw"], share) for one in entries("research-wrong") for share in one["share"]]
    for index in range(EPISODES):
        sheet = sheet_of(Research.load_task("validation", index // 4))
        flaw, share = flaws[index % len(flaws)]
        text = flawed_report(sheet, flaw, share, random.Random(index))
        plays.append((f"{flaw} {share} {index}", graded(sheet, text)))
    assert_none(plays)


# What the classes list themselves


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("workplace", whole_or_few(60, 15)),
        ("company", whole_or_few(20, 5)),
        ("support_desk", whole_or_few(36, 9)),
        ("search", whole_or_few(6, 2)),
        ("research", whole_or_few(3, 1)),
    ],  # fmt: skip
)
async def test_every_equivalent_earns_what_the_oracle_earns(player: Any, name: str, count: int) -> None:
    cls = player.host.catalog[name].cls
    tried = set()
    for index in range(count):
        for what, policy in cls.equivalents(player.task(name, "train", index)).items():
            tried.add(what)
            assert await earned(player, name, "train", index, policy) == 1.0, (index, what)
    assert len(tried) >= 4
