"""The help desk: splits, cases, what the policy decides, dialogues that earn everything, and what does not pay."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Generator
from datetime import date
from importlib import resources
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.environments.support_desk import SupportDesk
from ludus.environments.support_desk.cases import KINDS, Case, Request
from ludus.environments.support_desk.domains import DOMAINS
from ludus.environments.support_desk.environment import case_of
from ludus.environments.support_desk.kinds import IDENTITY, OUTCOMES, OWNER
from ludus.environments.support_desk.oracle import QUESTIONS, identify, look_up
from ludus.protocol import Answer, Call, EndReason, StepResult, text_of
from ludus.server import DIFFICULTIES, Difficulty
from ludus.server.authoring.partition import SPLITS, SplitType, split_of

each_level = pytest.mark.parametrize("level", DIFFICULTIES)
some_indices = st.integers(0, 2**40)
Policy = Generator[Call | Answer, StepResult, None]
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
NUMBERS = "zero one two three four five six seven eight nine ten eleven twelve".split()


def cases(level: Difficulty, count: int) -> list[Case]:
    return [case_of(SupportDesk.load_task("train", index, [level])) for index in range(count)]


# Splits


@given(
    index=some_indices,
    split=st.sampled_from(SPLITS),
    levels=st.sampled_from([DIFFICULTIES, *((one,) for one in DIFFICULTIES)]),
)
def test_the_user_of_a_task_determines_its_split(index: int, split: SplitType, levels: tuple[Difficulty, ...]) -> None:
    task = SupportDesk.load_task(split, index, levels)
    assert split_of(task.person) == split
    assert task.difficulty in levels
    assert SupportDesk.load_task(split, index, levels) == task


@each_level
def test_no_user_is_in_two_splits_or_twice_in_a_held_out_one(level: Difficulty) -> None:
    people = {split: [SupportDesk.load_task(split, index, [level]).person for index in range(300)] for split in SPLITS}
    for one, other in itertools.combinations(people.values(), 2):
        assert set(one).isdisjoint(other)
    assert all(len(set(people[split])) == SupportDesk.counts[split] == 300 for split in ("validation", "test"))


# Cases


def test_kinds_and_outcomes_are_balanced_so_that_no_constant_decision_wins() -> None:
    tasks = [SupportDesk.load_task("train", index, ["medium"]) for index in range(len(KINDS) * len(OUTCOMES) * 4)]
    assert set(Counter((task.kind, task.outcome) for task in tasks).values()) == {4}
    decisions = Counter((task.kind, case_of(task).requests[0].decision.code) for task in tasks)
    most = max(decisions.values()) / len(OUTCOMES) / 4
    assert most <= 0.4, "a policy that always decides alike is right in a third of the cases of a kind"


@each_level
def test_the_first_request_has_the_outcome_that_was_drawn_and_ids_name_one_row_each(level: Difficulty) -> None:
    for index in range(60):
        task = SupportDesk.load_task("validation", index, [level])
        case = case_of(task)
        assert case.requests[0].decision.outcome == task.outcome
        assert case.requests[0].kind.name == task.kind
        rows = [(table, row.id) for table, row in case.rows]
        assert len(set(rows)) == len(rows)
        assert all(request.decision.figures for request in case.requests), "each outcome has a figure to state"


def test_levels_add_second_requests_namesakes_strangers_and_changes_of_mind() -> None:
    easy, medium, hard = (cases(level, 120) for level in DIFFICULTIES)
    assert {len(case.requests) for case in easy + medium} == {1}
    assert Counter(len(case.requests) for case in hard)[2] > 100
    for case in easy:
        assert not any((case.first, case.wrong, case.requests[0].change))
        assert case.requests[0].knows_id
    for those in (medium, hard):
        codes = Counter(request.decision.code for case in those for request in case.requests)
        assert min(codes[IDENTITY], codes[OWNER]) >= 2
        assert sum(bool(case.first) for case in those) >= 20
        assert sum(any(request.change for request in case.requests) for case in those) >= 8
        assert sum(not all(request.knows_id for request in case.requests) for case in those) >= 20
        for case in those:
            assert sum(row.name == case.user.name for table, row in case.rows if table == "customers") == 3


@each_level
def test_a_decision_follows_from_the_file_the_policy_and_what_the_user_says(level: Difficulty) -> None:
    """The policy decides without anything that an agent cannot learn: rows, numbers in the prompt, answers."""
    for case in cases(level, 72):
        for request in case.requests:
            if request.decision.code in (IDENTITY, OWNER):
                continue
            assert request.kind.decide(case.policy, request.owner, request.ask, request.wish) == request.decision
            spoken = " ".join(request.ask.says.values()) + (request.change.says if request.change else "")
            for value in request.wish.values():
                assert str(value) in spoken or str(value) in ("1", "card", "credit")


def test_every_rule_and_team_decides_some_case() -> None:
    found = {
        (case.domain.name, request.decision.code)
        for level in DIFFICULTIES
        for case in cases(level, 252)
        for request in case.requests
    }
    for domain in DOMAINS.values():
        for code in (*domain.codes, *domain.teams, IDENTITY, OWNER, ""):
            assert (domain.name, code) in found


# Dialogues


@pytest.mark.suite("breadth", first=1)
@each_level
async def test_the_oracle_earns_everything_for_each_kind_and_outcome(player: Any, level: Difficulty) -> None:
    for index in range(len(KINDS) * len(OUTCOMES)):
        [episode] = await player.start(f"support_desk-{level}", "validation", index, seed=index)
        results = await player.play(episode.episode, player.oracle(f"support_desk-{level}", "validation", index))
        total, _ = await player.rewards(episode.episode)
        assert (total.value, [result.error for result in results if result.error]) == (1.0, []), index
        assert len(results) <= 45


def spelled(value: Any) -> str:
    """A figure as language models write it."""
    if isinstance(value, int):
        return f"${value}.00"
    if value.count("-") == 2 and value[:4].isdigit():
        day = date.fromisoformat(value)
        return f"{MONTHS[day.month - 1]} {day.day}, {day.year}"
    return str(value)


def wordy(case: Case) -> Policy:
    """Do the work in the words of a chatty language model, without the figures' plain forms."""
    text = ""
    for message in (
        "Hi there! 😊 I'd be more than happy to help you with that. For security purposes, could you please verify "
        "your identity by providing the **e-mail address** on your account and your **date of birth**?",
        "I'm sorry, but I couldn't match these details. Could you please double-check your email and date of birth?",
    ):
        text = text_of((yield Call("reply", {"message": message})).content)
        if case.user.email in text and case.user.birth in text:
            break
    for number, request in enumerate(case.requests):
        if number:
            yield Call("reply", {"message": "Is there anything else I can assist you with today?"})
        yield from wordy_request(case, request)
    yield Answer("You're welcome! Have a wonderful day!")


def wordy_request(case: Case, request: Request) -> Policy:
    decision, noun = request.decision, case.domain.noun
    yield Call("reply", {"message": f"Thank you! Could you also share your {noun} number, please?"})
    if decision.code not in (IDENTITY, OWNER):
        yield from look_up(case, request)
        for slot in request.ask.says:
            yield Call("reply", {"message": f"Got it. One quick question before I proceed:\n\n1. {QUESTIONS[slot]}"})
    if decision.outcome == "granted":
        first = request.kind.decide(case.policy, request.owner, request.ask, request.ask.wish)
        for values in ({**request.ask.wish, **first.arguments}, {**request.wish, **decision.arguments}):
            lines = "\n".join(f"- **{name.title()}:** {worded(name, value)}" for name, value in values.items())
            words = request.kind.tool.replace("_", " ")
            message = (
                f"Great news! Here is what I can do ({words}):\n\n- **{noun.title()}:** {request.id}\n{lines}\n\n"
                "Would you like me to proceed? (yes/no)"
            )
            if text_of((yield Call("reply", {"message": message})).content).startswith("Yes"):
                break
        yield Call(request.kind.tool, {case.domain.id_parameter: request.id, **decision.arguments})
        rest = "; ".join(worded("", one) for one in decision.figures)
        yield Call("reply", {"message": f"All done! As for your question, here are the details: {rest}."})
    else:
        tool, name = ("log_refusal", "rule") if decision.outcome == "refused" else ("escalate", "team")
        yield Call(tool, {"record_id": request.id, name: decision.code})
        figure = decision.figures[0]
        if decision.outcome == "escalated":
            days = NUMBERS[int(figure)]
            text = (
                f"I've forwarded your case to our {decision.code} team. You'll hear back within {days} business days."
            )
        else:
            limit = figure if isinstance(figure, int) else spelled(figure)
            text = (
                "I completely understand your frustration, but I'm unable to make an exception here; the relevant "
                f"figure is {limit}."
            )
        for _ in range(3):
            yield Call("reply", {"message": text})


def worded(name: str, value: Any) -> str:
    if isinstance(value, int) and name in ("bags", "days", ""):
        return str(value)
    return spelled(value)


@pytest.mark.suite("breadth", first=2)
@each_level
async def test_a_clerk_with_the_words_of_a_language_model_earns_everything_too(player: Any, level: Difficulty) -> None:
    for index in range(len(KINDS) * 2):
        case = case_of(player.task(f"support_desk-{level}", "train", index))
        [episode] = await player.start(f"support_desk-{level}", "train", index, seed=index)
        results = await player.play(episode.episode, wordy(case))
        total, _ = await player.rewards(episode.episode)
        evidence = {name: part.evidence for name, part in total.components.items() if part.evidence}
        assert total.value == 1.0, (index, evidence, total.components, [text_of(one.content) for one in results])


async def test_the_same_seed_gives_the_same_user_and_another_seed_other_words(player: Any) -> None:
    async def words(seed: int) -> tuple[str, ...]:
        [episode] = await player.start("support_desk-hard", "train", 5, seed=seed)
        results = await player.play(episode.episode, player.oracle("support_desk-hard", "train", 5))
        return (text_of(episode.prompt[0].content), *(text_of(one.content) for one in results))

    assert await words(3) == await words(3)
    assert len({await words(seed) for seed in range(8)}) > 1


# What does not pay


@pytest.mark.suite("breadth", first=1)
@each_level
async def test_no_exploit_earns_anything(player: Any, level: Difficulty) -> None:
    tried: set[str] = set()
    for index in range(0, 36, 13):
        for what, policy in SupportDesk.exploits(player.task(f"support_desk-{level}", "train", index)).items():
            tried.add(what)
            [episode] = await player.start(f"support_desk-{level}", "train", index, seed=index)
            await player.play(episode.episode, policy)
            assert (await player.rewards(episode.episode))[0].value == 0.0, (index, what)
    assert len(tried) >= 45


async def ended(player: Any, level: str, index: int, policy: Policy) -> float:
    [episode] = await player.start(f"support_desk-{level}", "train", index, seed=index)
    await player.play(episode.episode, policy)
    value: float = (await player.rewards(episode.episode))[0].value
    return value


def constant(case: Case, tool: str, **arguments: str) -> Policy:
    """Identify the user, ask what there is to ask, and decide as always."""
    yield from identify(case)
    for request in case.requests:
        yield Call(
            "reply",
            {"message": f"Which {case.domain.noun} number? {' '.join(QUESTIONS[one] for one in request.ask.says)}"},
        )
        yield Call(tool, {"record_id": request.id, **arguments})
        yield Call("reply", {"message": "I have dealt with it by our policy. Anything else?"})
    yield Call("end_conversation", {"message": "Goodbye!"})


@pytest.mark.parametrize("level", ["medium"])
async def test_decisions_that_are_always_the_same_earn_nothing(player: Any, level: str) -> None:
    for index in range(0, 12, 2):
        case = case_of(player.task(f"support_desk-{level}", "train", index))
        for code in (OWNER, *case.domain.codes):
            assert await ended(player, level, index, constant(case, "log_refusal", rule=code)) == 0.0
        for team in case.domain.teams:
            assert await ended(player, level, index, constant(case, "escalate", team=team)) == 0.0


async def test_a_user_whose_time_is_wasted_leaves_and_the_work_is_worth_nothing(player: Any) -> None:
    [episode] = await player.start("support_desk-easy", "train", 0)
    result = await player.step(episode.episode, "reply", message="Hello!")
    while not result.ended:
        result = await player.step(episode.episode, "reply", message="Hello!")
    assert result.end_reason is EndReason.COMPLETED
    assert "left" in text_of(result.content)
    assert (await player.rewards(episode.episode))[0].value == 0.0


async def test_half_of_two_requests_is_worth_half(player: Any) -> None:
    index = next(at for at in range(40) if len(case_of(player.task("support_desk-hard", "train", at)).requests) == 2)

    def first_only() -> Policy:
        policy = player.oracle("support_desk-hard", "train", index)
        case, settled = case_of(player.task("support_desk-hard", "train", index)), 0
        action = next(policy)
        while True:
            settled += isinstance(action, Call) and action.tool not in (
                "reply",
                "find_customers",
                "list_records",
                "show_record",
                "find_flights",
                "find_outages",
            )
            if settled == len(case.requests):
                return
            action = policy.send((yield action))

    def ending() -> Policy:
        yield from first_only()
        yield Call("end_conversation", {"message": "Goodbye!"})

    assert await ended(player, "hard", index, ending()) == 0.5


# Tools


@pytest.mark.parametrize("domain", sorted(DOMAINS))
async def test_tools_refuse_what_they_cannot_do_and_say_what_to_do(player: Any, domain: str) -> None:
    index = next(at for at in range(12) if player.task("support_desk-easy", "train", at).domain == domain)
    case = case_of(player.task("support_desk-easy", "train", index))
    [episode] = await player.start("support_desk-easy", "train", index)
    wrong: list[tuple[str, dict[str, Any], str]] = [
        ("find_customers", {"query": "no such person"}, "No customer"),
        ("list_records", {"customer_id": "C-1"}, "find_customers shows ids"),
        ("show_record", {"record_id": "?"}, "look like"),
        ("log_refusal", {"record_id": case.requests[0].id, "rule": "NO"}, "rule is one of IDENTITY, OWNER"),
        ("escalate", {"record_id": case.requests[0].id, "team": "boss"}, f"team is one of {case.domain.teams[0]}"),
        ("reply", {"message": " "}, "1 to 2000 characters"),
        ("reply", {"message": "x" * 2001}, "not 2001"),
        ("end_conversation", {"message": "x" * 2001}, "Nothing has ended"),
    ]
    for name in case.domain.effects:
        tool = next(one for one in episode.tools if one.name == name)
        values = {"integer": 1, "string": "?"}
        arguments = {
            key: schema.get("enum", [values[schema["type"]]])[0]
            for key, schema in tool.input_schema["properties"].items()
        }
        wrong.append((name, arguments, ""))
    for name, arguments, says in wrong:
        result = await player.step(episode.episode, name, **arguments)
        assert result.error is not None, (name, arguments)
        assert result.error.code == "refused"
        assert says in text_of(result.content), (name, text_of(result.content))
    assert {tool.name for tool in episode.tools} >= set(case.domain.effects)


async def test_a_log_takes_one_entry_about_a_record(player: Any) -> None:
    case = case_of(player.task("support_desk-easy", "train", 0))
    [episode] = await player.start("support_desk-easy", "train", 0)
    arguments = {"record_id": case.requests[0].id, "team": case.domain.teams[0]}
    assert (await player.step(episode.episode, "escalate", **arguments)).error is None
    again = await player.step(episode.episode, "escalate", **arguments)
    assert "already an entry" in text_of(again.content)


def test_the_card_names_the_domains_rules_and_teams() -> None:
    card = (resources.files("ludus.environments.support_desk") / "README.md").read_text()
    for domain in DOMAINS.values():
        assert f"| `{domain.name}` |" in card
        assert [one for one in (*domain.codes, *domain.teams, *domain.effects) if f"`{one}`" not in card] == []
