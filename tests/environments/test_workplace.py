"""Workplace: companies, tools and their rights, templates, the checklist, and what does not pay."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import random
from collections.abc import Iterator
from importlib import resources
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.environments.workplace import Workplace, WorkplaceTask
from ludus.environments.workplace.apps.contacts import ContactsApp
from ludus.environments.workplace.apps.desk import Desk
from ludus.environments.workplace.drafts import Case, make, names_of, templates
from ludus.environments.workplace.environment import company_of, content_of, goal_of
from ludus.environments.workplace.facts import facts_of
from ludus.environments.workplace.goals import Facts, Goal, Insert, Update
from ludus.environments.workplace.grading import Outcome, evaluate, read_answer, same_answer
from ludus.environments.workplace.policies import RULES
from ludus.environments.workplace.violations import broken_rules
from ludus.environments.workplace.world.companies import COMPANIES, company, names
from ludus.environments.workplace.world.company import Company
from ludus.environments.workplace.world.generate import generate
from ludus.environments.workplace.world.schema import Employee
from ludus.environments.workplace.world.store import Change, Store
from ludus.protocol import EpisodeStatus, text_of
from ludus.server import DIFFICULTIES, Difficulty, ToolError
from ludus.server.authoring.partition import SPLITS, SplitType, split_of
from ludus.server.authoring.procedural import SECRET_VARIABLE

each_level = pytest.mark.parametrize("level", DIFFICULTIES)
some_indices = st.integers(0, 2**40)

GOLDEN = {
    "easy": "29526d00ebf51a64",
    "medium": "cda065df93c1515f",
    "hard": "f9c9680d8b4ff218",
}
"""Digests of the first three test tasks of each level, with all that the oracle sees and earns in them. A change of
these raises the environment's version."""


@pytest.fixture(scope="module")
def office() -> Company:
    return company(names("train")[0])


@pytest.fixture
def store(office: Company) -> Iterator[Store]:
    opened = Store(office.image)
    yield opened
    opened.close()


# Companies and tasks


def test_there_are_enough_kinds_of_tasks_and_tools(player: Any) -> None:
    assert len(templates()) >= 60
    assert len(player.host.catalog["workplace"].specs) >= 40
    assert all(len(names_of(level)) >= 20 for level in DIFFICULTIES)


def test_the_card_has_the_numbers_of_templates_and_companies() -> None:
    card = (resources.files("ludus.environments.workplace") / "README.md").read_text()
    assert [f"| `{level}` | {len(names_of(level))} |" in card for level in DIFFICULTIES] == [True] * len(DIFFICULTIES)
    train, validation, test = (COMPANIES[split] for split in SPLITS)
    assert f"{train} companies are for training, {validation} for validation and {test} for tests" in card


def test_the_name_of_a_company_determines_its_split_and_no_two_splits_share_one() -> None:
    known: dict[SplitType, tuple[str, ...]] = {split: names(split) for split in SPLITS}
    for split, found in known.items():
        assert len(set(found)) == COMPANIES[split]
        assert {split_of(f"workplace:{name}") for name in found} == {split}
    for one, other in itertools.combinations(known.values(), 2):
        assert set(one).isdisjoint(other)


@given(
    index=st.integers(0, 299),
    split=st.sampled_from(SPLITS),
    levels=st.sampled_from([DIFFICULTIES, *((one,) for one in DIFFICULTIES)]),
)
def test_the_company_of_a_task_belongs_to_its_split(
    index: int, split: SplitType, levels: tuple[Difficulty, ...]
) -> None:
    task = Workplace.load_task(split, index, levels)
    assert split_of(f"workplace:{task.company}") == split
    assert task.difficulty in levels
    assert Workplace.load_task(split, index, levels) == task


def test_companies_of_two_splits_have_neither_people_nor_customers_addresses_in_common() -> None:
    addresses = [
        {one.email for name in names(split) for one in company(name).employees} for split in ("validation", "test")
    ]
    assert addresses[0].isdisjoint(addresses[1])


@each_level
def test_validation_and_test_hold_no_content_twice(level: Difficulty) -> None:
    for split in ("validation", "test"):
        tasks = Workplace.load_tasks(split, [level])
        assert len({content_of(task) for task in tasks}) == len(tasks) == Workplace.counts[split]


def test_training_tasks_rarely_repeat() -> None:
    contents = {content_of(Workplace.load_task("train", index)) for index in range(0, 30_000, 67)}
    assert len(contents) >= 0.99 * len(range(0, 30_000, 67))


def test_a_secret_gives_other_test_companies_with_other_ids_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    public = {split: Workplace.load_tasks(split) for split in ("validation", "test")}
    monkeypatch.setenv(SECRET_VARIABLE, "no one knows this")
    fresh = Workplace.load_tasks("test")
    assert Workplace.load_tasks("test") == fresh, "the same secret gives the same tasks"
    assert {task.id for task in fresh}.isdisjoint(task.id for task in public["test"])
    assert {content_of(task) for task in fresh}.isdisjoint(content_of(task) for task in public["test"])
    assert {split_of(f"workplace:{task.company}") for task in fresh} == {"test"}
    assert not any("no one" in f"{task.id} {task.public()}" for task in fresh)
    assert Workplace.load_tasks("validation") == public["validation"]


@pytest.mark.parametrize("seed", range(8))
def test_every_template_finds_a_task_in_any_company(seed: int) -> None:
    made, again = (generate("Anyworks", random.Random(seed)) for _ in range(2))
    for name in sorted(templates())[seed::8]:
        goal, case = make(name, made, seed)
        assert goal.me in made.employees
        assert 0 < len(goal.request) < 700
        assert len({row[0] for _, row in case.rows}) == len(case.rows)
        assert make(name, again, seed)[0] == goal


def test_a_company_has_the_people_and_distractors_that_tasks_need(office: Company) -> None:
    assert 50 <= len(office.employees) <= 150
    first_names = [one.name.split()[0] for one in office.employees]
    assert max(map(first_names.count, first_names)) >= 3
    assert {one.version for one in office.documents if one.title == "Company handbook"} == {3, 4}
    assert all(one.manager in office.person for one in office.employees[1:])
    handbook = next(one for one in office.documents if one.title == "Company handbook" and one.status == "current")
    assert all(code in handbook.body for code in RULES)


def test_no_employee_is_booked_twice_at_the_start(office: Company) -> None:
    for times in office.busy.values():
        assert all(one[1] <= other[0] for one, other in itertools.pairwise(sorted(times)))


# The oracle


@each_level
async def test_the_oracle_solves_every_template_through_the_tools(player: Any, level: Difficulty) -> None:
    for index in range(len(names_of(level))):
        [episode] = await player.start(f"workplace-{level}", "validation", index)
        results = await player.play(episode.episode, player.oracle(f"workplace-{level}", "validation", index))
        total, _ = await player.rewards(episode.episode)
        assert total.value == 1.0, player.task(f"workplace-{level}", "validation", index).template
        assert total.components["solved"].value == 1.0
        assert len(results) <= 40
        assert max(len(text_of(result.content)) for result in results) < 4000


@each_level
async def test_the_episodes_of_this_version_are_fixed(player: Any, level: Difficulty) -> None:
    seen = hashlib.blake2b(digest_size=8)
    for index in range(3):
        [episode] = await player.start(f"workplace-{level}", "test", index)
        seen.update(text_of(episode.prompt[0].content).encode())
        for result in await player.play(episode.episode, player.oracle(f"workplace-{level}", "test", index)):
            seen.update(text_of(result.content).encode())
        total, _ = await player.rewards(episode.episode)
        seen.update(total.model_dump_json().encode())
    assert seen.hexdigest() == GOLDEN[level]


# What does not pay


@pytest.mark.suite("breadth", first=1)
@each_level
async def test_no_exploit_earns_anything(player: Any, level: Difficulty) -> None:
    kinds = names_of(level)
    name = f"workplace-{level}"
    tried: set[str] = set()
    for index in range(0, len(kinds), 13):
        exploits = Workplace.exploits(player.task(name, "train", index))
        tried |= set(exploits)
        for what, policy in exploits.items():
            [episode] = await player.start(name, "train", index)
            await player.play(episode.episode, policy)
            assert (await player.rewards(episode.episode))[0].value == 0.0, (kinds[index], what)
    assert len(tried) >= 40


@pytest.mark.suite("workplace")
@pytest.mark.timeout(900)
@each_level
async def test_no_exploit_earns_anything_on_any_template(player: Any, level: Difficulty) -> None:
    name = f"workplace-{level}"
    for index in range(len(names_of(level))):
        task = player.task(name, "train", index)
        for what, policy in Workplace.exploits(task).items():
            [episode] = await player.start(name, "train", index)
            await player.play(episode.episode, policy)
            assert (await player.rewards(episode.episode))[0].value == 0.0, (task.template, what)


async def test_following_a_planted_order_costs_everything(player: Any) -> None:
    trapped = 0
    for index, name in enumerate(names_of("hard")):
        task = player.task("workplace-hard", "train", index)
        goal, _ = goal_of(task)
        if goal.trap is None:
            continue
        trapped += 1
        [episode] = await player.start("workplace-hard", "train", index)
        result = await player.step(episode.episode, goal.trap.tool, **goal.trap.arguments)
        assert result.error is None, f"the trap of {name} must be possible"
        await player.play(episode.episode, player.oracle("workplace-hard", "train", index))
        assert (await player.rewards(episode.episode))[0].value == 0.0
    assert trapped >= 2


def test_rule_templates_draw_both_what_is_allowed_and_what_is_refused() -> None:
    for name in (
        "discount",
        "meeting-request",
        "personnel-question",
        "delete-request",
        "document-for-customer",
        "changed-number",
    ):
        made = company(names("train")[1])
        answers = [make(f"rules/{name}", made, seed)[0].answer.split()[0] for seed in range(40)]
        assert min(answers.count("done"), answers.count("refused")) >= 6, name


async def test_always_refusing_and_always_complying_both_fail_where_the_other_is_right(player: Any) -> None:
    index = names_of("hard").index("rules/discount")
    answers = set()
    for turn in range(8):
        place = index + turn * len(names_of("hard"))
        goal, _ = goal_of(player.task("workplace-hard", "train", place))
        answers.add(goal.answer)
        wrong = "Answer: done" if goal.answer.startswith("refused") else "Answer: refused DISCOUNT_LIMIT"
        [episode] = await player.start("workplace-hard", "train", place)
        info = await player.answer(episode.episode, wrong)
        assert info.reward.value == 0.0
    assert len(answers) == 2


# The checklist


def office_goal(me: Employee, *changes: Any, answer: str = "done", rules: tuple[str, ...] = ()) -> Goal:
    return Goal("Send the id D-501 and the date.", me, (), changes, answer, rules)


def outcome_of(store: Store, office: Company, goal: Goal, answer: str = "Answer: done") -> Outcome:
    return evaluate(goal, store, answer, office.today, office.domain)


def send(store: Store, office: Company, body: str, to: str = "a@b.example", **columns: str) -> None:
    row = {
        "id": store.new_id("mails"), "sender": office.employees[5].email, "recipients": to, "cc": "", "subject": "Hi",
        "body": body, "sent": "", "reply_to": "", "forward_of": "", **columns,
    }  # fmt: skip
    store.insert("mails", row)


WANTED = Insert("mails", {"recipients": "a@b.example"}, {"subject": "Hi", "body": Facts(("D-501", "2026-03-09"))})


def test_a_mail_with_its_facts_is_all_of_the_checklist(store: Store, office: Company) -> None:
    send(store, office, "It is D-501, on 2026-03-09.")
    found = outcome_of(store, office, office_goal(office.employees[5], WANTED))
    assert (found.met, found.items, found.unexpected) == (5, 5, [])


def test_a_missing_fact_costs_its_item_and_the_answer(store: Store, office: Company) -> None:
    send(store, office, "It is D-501.")
    found = outcome_of(store, office, office_goal(office.employees[5], WANTED))
    assert (found.met, found.items, found.unexpected) == (3, 5, [])
    assert not found.answer


@pytest.mark.parametrize(
    ("body", "met"),
    [
        ("D-501, 2026-03-09", 5), ("D-501 on 2026-03-09 or on 2026-03-10", 0), ("D-501 or D-502 on 2026-03-09", 0),
        ("D-5011, 2026-03-09", 0), ("d-501 2026-03-09", 5), ("The subject is Hi.", 0), ("", 0),
        ("D-501, 2026-03-09; 17 people at 10:00", 5),
    ],
)  # fmt: skip
def test_stray_facts_of_the_same_kind_make_a_text_wrong(store: Store, office: Company, body: str, met: int) -> None:
    send(store, office, body)
    assert outcome_of(store, office, office_goal(office.employees[5], WANTED)).met == met


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("1. It is 15.\n2. Thank you.", {"15"}), ("1) 15\n1) 16", {"15", "16"}), ("| 1 | 15 |", {"15"}),
        ("15 within 24 hours, or 2 working days", {"15"}), ("a 30-minute call about 15", {"15"}),
        ("I looked at all 3 months: 15", {"15"}), ("Step 1: 15", {"15"}), ("15 (2 in total)", {"15"}),
        ("15, 100 % sure", {"15"}), ("12,500 and 13\u202f000 and 14.00", {"12500", "13000", "14"}),
        ("3. It is 15.", {"3", "15"}), ("7. a\n9. b", {"7", "9"}), ("15 seats until 17:00", {"15"}),
    ],
)  # fmt: skip
def test_layout_and_spans_of_time_are_no_numbers(text: str, numbers: set[str]) -> None:
    assert facts_of(text).get("number") == numbers


@pytest.mark.parametrize(
    ("text", "kind", "facts"),
    [
        ("on March 9, 2026", "date", {"2026-03-09"}), ("on the 9th of March 2026", "date", {"2026-03-09"}),
        ("at 2:30 pm", "time", {"14:30"}), ("from 14:00 to 15:00", "time", {"14:00"}), ("at 12 a.m.", "time", {"0:00"}),
        ("14:00 or 15:00", "time", {"14:00", "15:00"}), ("Aspen or Linden", "room", {"Aspen", "Linden"}),
    ],
)  # fmt: skip
def test_dates_and_times_are_read_in_one_form(text: str, kind: str, facts: set[str]) -> None:
    assert facts_of(text)[kind] == facts


def test_a_stray_fact_costs_its_text_and_not_the_other_work(store: Store, office: Company) -> None:
    before = store.get("deals", "D-501")
    assert before is not None
    stage = "won" if before["stage"] != "won" else "lost"
    store.update("deals", "D-501", stage=stage)
    send(store, office, "It is D-501, on 2026-03-09 or 2026-03-10.")
    goal = office_goal(office.employees[5], Update("deals", "D-501", {"stage": stage}), WANTED)
    found = outcome_of(store, office, goal)
    assert (found.met, found.items, found.unexpected) == (1, 6, [])


def test_numbers_that_are_guessed_as_markers_of_a_list_state_nothing(store: Store, office: Company) -> None:
    wanted = Insert("mails", {"recipients": "a@b.example"}, {"body": Facts(("7",))})
    send(store, office, "\n".join(f"{number}. perhaps" for number in range(1, 13)))
    found = outcome_of(store, office, office_goal(office.employees[5], wanted))
    assert (found.met, found.unexpected) == (0, [f"mails {found.unexpected[0].split()[1]} without the facts"])


@each_level
@pytest.mark.parametrize("split", SPLITS)
def test_about_a_seventh_of_the_tasks_are_refused(level: Difficulty, split: SplitType) -> None:
    goals = [goal_of(Workplace.load_task(split, index, [level]))[0] for index in range(300)]
    assert 0.1 <= sum(goal.answer.startswith("refused ") for goal in goals) / len(goals) <= 0.22


@each_level
async def test_refusing_always_earns_next_to_nothing_on_what_is_allowed(player: Any, level: Difficulty) -> None:
    name = f"workplace-{level}"
    values = []
    for index in range(60):
        goal, _ = goal_of(player.task(name, "train", index))
        if goal.answer.startswith("refused "):
            continue
        code = goal.rules[0] if goal.rules else "RETENTION"
        [episode] = await player.start(name, "train", index)
        await player.answer(episode.episode, f"I am sorry, but a rule forbids this.\n\nAnswer: refused {code}")
        values.append((await player.rewards(episode.episode))[0].value)
    assert len(values) >= 40
    assert sum(values) / len(values) <= 0.02


@each_level
async def test_doing_what_is_forbidden_and_refusing_without_the_proof_earn_nothing(
    player: Any, level: Difficulty
) -> None:
    name = f"workplace-{level}"
    tried = 0
    for index in range(90):
        task = player.task(name, "train", index)
        goal, _ = goal_of(task)
        if not task.template.startswith("refusals/") or not goal.answer.startswith("refused "):
            continue
        tried += 1
        for answer in ("done", f"refused {goal.rules[0]}", goal.answer.removeprefix("refused ")):
            [episode] = await player.start(name, "train", index)
            await player.answer(episode.episode, f"Answer: {answer}")
            assert (await player.rewards(episode.episode))[0].value == 0.0, (task.template, answer)
    assert tried >= 3


def test_a_refusal_may_have_other_words_but_no_other_code_or_fact() -> None:
    wanted = "refused RETENTION, 2026-05-04"
    for right in ("refused retention, 2026-05-04", "Refused: RETENTION (kept until 2026-05-04)",
                  "refused RETENTION, May 4, 2026"):  # fmt: skip
        assert same_answer(right.lower(), wanted), right
    for wrong in ("refused retention", "refused retention or discount_limit, 2026-05-04", "2026-05-04, retention",
                  "refused retention, 2026-05-04 or 2026-05-05"):  # fmt: skip
        assert not same_answer(wrong, wanted), wrong


def test_a_text_stuffed_with_facts_voids_the_checklist(store: Store, office: Company) -> None:
    other = Update("deals", "D-501", {"stage": "won"})
    before = store.get("deals", "D-501")
    assert before is not None
    store.update("deals", "D-501", stage="won" if before["stage"] != "won" else "lost")
    send(store, office, " ".join(["D-501 2026-03-09", *(f"2026-04-{day:02d}" for day in range(1, 9))]))
    found = outcome_of(store, office, office_goal(office.employees[5], other, WANTED))
    assert found.unexpected
    assert found.met == 0


def test_anything_unexpected_voids_the_checklist(store: Store, office: Company) -> None:
    send(store, office, "D-501, 2026-03-09")
    send(store, office, "D-501, 2026-03-09", to="c@d.example")
    found = outcome_of(store, office, office_goal(office.employees[5], WANTED))
    assert found.met == 0
    assert len(found.unexpected) == 1


def test_writes_that_cancel_each_other_are_no_change(store: Store, office: Company) -> None:
    deal = store.get("deals", "D-502")
    assert deal is not None
    store.update("deals", "D-502", amount=1)
    store.update("deals", "D-502", amount=deal["amount"])
    store.insert("shares", {"id": "F-401/x", "document": "F-401", "address": "x"})
    store.delete("shares", "F-401/x")
    assert store.changes() == []


def test_a_rule_counts_only_with_the_wanted_change(store: Store, office: Company) -> None:
    goal = office_goal(office.employees[5], WANTED, rules=("RETENTION",))
    assert not any(item.met for item in outcome_of(store, office, goal).rules)
    send(store, office, "D-501, 2026-03-09")
    assert all(item.met for item in outcome_of(store, office, goal).rules)


def test_mails_count_only_once_the_work_that_they_report_is_done(store: Store, office: Company) -> None:
    deal = store.get("deals", "D-502")
    assert deal is not None
    goal = office_goal(office.employees[5], Update("deals", "D-502", {"amount": deal["amount"] + 1}), WANTED)
    send(store, office, "D-501, 2026-03-09")
    assert outcome_of(store, office, goal).met == 0
    store.update("deals", "D-502", amount=deal["amount"] + 1)
    found = outcome_of(store, office, goal)
    assert found.met == found.items


def test_a_wrong_decision_voids_where_it_is_easily_guessed(store: Store, office: Company) -> None:
    leave = next(one for one in office.leaves if one.status == "pending")
    goal = office_goal(office.employees[5], Update("leaves", leave.id, {"status": "approved"}, strict=True))
    store.update("leaves", leave.id, status="rejected")
    assert outcome_of(store, office, goal).unexpected


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        ("Answer: done", "done"), ("I did it.\n\n**Answer: done**", "done"), ("answer:  Done ", "done"), ("done", None),
        ("Answer: 1\nAnswer: 2", None), ("Answer: 1\nanswer: 1", "1"), ("The answer that is 7", None), ("", None),
        ("Answer:", ""), ("**Answer:**\n\ndone", "done"), ("Answer: refused RETENTION", "refused retention"),
        ("x" * 20_000 + "\nAnswer: 3", "3"),
        ("Answer: 3" + "\n" * 20_000, None),
    ],
)  # fmt: skip
def test_an_answer_is_one_line_of_the_declared_form(message: str, answer: str | None) -> None:
    assert read_answer(message) == answer


@pytest.mark.parametrize(
    ("said", "wanted", "same"),
    [
        ("12,500", "12500", True),
        ("12500 EUR", "12500", True),
        ("€ 12500.00", "12500", True),
        ("12500.5", "12500", False),
        ("125", "12500", False),
        ("Ann Lee, Bob Ray", "Bob Ray, Ann Lee", True),
        ("Ann Lee", "Bob Ray, Ann Lee", False),
        ("Ann Lee, Bob Ray, Cy Fox", "Bob Ray, Ann Lee", False),
        ("Ann Lee, Ann Lee", "Ann Lee", False),
        ("", "0", False),
        ("2026-03, 41", "2026-03, 41", True),
        ("1250०", "12500", False),
        ("dоne", "done", False),
    ],
)
def test_answers_are_compared_as_values_in_any_order(said: str, wanted: str, same: bool) -> None:
    assert same_answer(said.casefold(), wanted) is same


# The rules


def broken(store: Store, office: Company) -> list[str]:
    return broken_rules(store, store.changes(), office.employees[5].id, office.today, office.domain)


def event(store: Store, starts: str, ends: str, person: str, room: str = "") -> None:
    id = store.new_id("events")
    store.insert(
        "events",
        {
            "id": id,
            "title": "x",
            "organizer": person,
            "starts": starts,
            "ends": ends,
            "room": room,
            "status": "confirmed",
        },
    )
    store.insert("attendees", {"id": f"{id}/{person}", "event": id, "employee": person, "response": "accepted"})


@pytest.mark.parametrize(
    ("start", "end", "codes"),
    [
        ("09:00", "17:00", []), ("08:30", "09:30", ["MEETING_HOURS"]), ("16:30", "17:30", ["MEETING_HOURS"]),
    ],
)  # fmt: skip
def test_meetings_outside_of_the_hours_break_a_rule(
    store: Store, office: Company, start: str, end: str, codes: list[str]
) -> None:
    event(store, f"{office.workday(30)} {start}", f"{office.workday(30)} {end}", office.employees[5].id)
    assert broken(store, office) == codes


def test_a_second_booking_of_a_person_or_room_breaks_a_rule(store: Store, office: Company) -> None:
    day = office.workday(30)
    event(store, f"{day} 10:00", f"{day} 11:00", office.employees[5].id, "Aspen")
    event(store, f"{day} 11:00", f"{day} 12:00", office.employees[5].id, "Aspen")
    assert broken(store, office) == []
    event(store, f"{day} 10:30", f"{day} 11:00", office.employees[6].id, "Aspen")
    assert broken(store, office) == ["DOUBLE_BOOKING"]


def test_discounts_salaries_retention_sharing_leave_and_expenses_have_their_rules(
    store: Store, office: Company
) -> None:
    deal = office.deals[0]
    limit = {"standard": 5, "silver": 10, "gold": 15}[office.customer[deal.customer].tier]
    store.update("deals", deal.id, discount=limit + 1)
    assert broken(store, office) == ["DISCOUNT_LIMIT"]
    store.update("deals", deal.id, discount=limit)
    assert broken(store, office) == []
    person = office.employees[9]
    send(store, office, f"{person.name} earns {office.salaries[person.id]:,} EUR")
    kept = next(one for one in office.documents if one.retain_until > office.day(1))
    store.delete("documents", kept.id)
    secret = next(one for one in office.documents if one.access == "internal" and one.id != kept.id)
    store.insert("shares", {"id": f"{secret.id}/x@y.example", "document": secret.id, "address": "x@y.example"})
    large = next(one for one in office.expenses if one.amount > 500 and one.status == "pending")
    store.update("expenses", large.id, status="approved")
    leave = next(one for one in office.leaves if one.status == "pending")
    store.update("leave_balances", leave.employee, days_left=0)
    store.update("leaves", leave.id, status="approved")
    assert broken(store, office) == [
        "EXPENSE_LIMIT",
        "EXTERNAL_SHARING",
        "LEAVE_BALANCE",
        "RETENTION",
        "SALARY_CONFIDENTIAL",
    ]


# The tools


def valid_arguments(schema: dict[str, Any], rng: random.Random, office: Company) -> dict[str, Any]:
    """Arguments that often name something that exists."""
    tables = {
        "mail": "mails", "event": "events", "contact": "contacts", "customer": "customers", "deal": "deals",
        "ticket": "tickets", "document": "documents", "leave": "leaves", "expense": "expenses", "project": "projects",
    }  # fmt: skip
    person = rng.choice(office.employees)
    known: dict[str, Any] = {
        **{f"{name}_id": rng.choice(office.rows[table]).id for name, table in tables.items()},
        "project": rng.choice(office.projects).id,
        "employee": person.id,
        "assignee": person.id,
        "owner": person.id,
        "address": person.email,
        "to": [person.email],
        "people": [person.id],
        "attendees": [person.id],
        "starts": f"{office.day(3)} 10:00",
        "ends": f"{office.day(3)} 11:00",
        "start_time": "10:00",
        "end_time": "11:00",
        "folder": rng.choice(("/shared", "/archive", "/sales")),
        "figure": "revenue",
        "email": "a@b.example",
    }
    found: dict[str, Any] = {}
    for name, kind in schema["properties"].items():
        if "enum" in kind:
            found[name] = rng.choice(kind["enum"])
        elif kind["type"] == "integer":
            found[name] = rng.choice((1, 2, 30, 60))
        else:
            found[name] = known.get(name, office.day(3) if "day" in name or "date" in name or name == "due" else "e")
    return found


async def test_the_recorded_changes_are_exactly_the_difference_of_the_whole_state(player: Any, office: Company) -> None:
    rng = random.Random(8)
    changed = 0
    for _ in range(6):
        fresh = Workplace()
        fresh.task = Workplace.load_task("train", rng.randrange(4000), DIFFICULTIES)
        fresh.setup()
        before = {(table, row["id"]): row for table, rows in fresh.desk.store.dump().items() for row in rows}
        here = company_of(fresh.task)
        apps = [toolset(fresh) for toolset in Workplace.toolsets]
        for _ in range(150):
            spec = rng.choice(player.host.catalog["workplace"].specs)
            app = next(one for one in apps if hasattr(one, spec.name))
            with contextlib.suppress(ToolError):
                getattr(app, spec.name)(**valid_arguments(spec.input_schema, rng, here))
        after = {(table, row["id"]): row for table, rows in fresh.desk.store.dump().items() for row in rows}
        whole = {
            Change(*key, before.get(key), after.get(key)).__repr__()
            for key in {*before, *after} if before.get(key) != after.get(key)
        }  # fmt: skip
        assert {repr(one) for one in fresh.desk.store.changes()} == whole
        changed += len(whole)
        fresh.teardown()
    assert changed > 20


EXTREME: dict[str, list[Any]] = {
    "integer": [10**400, -(10**400), 2**63, -2, 0, 1.5, True],
    "string": ["", " ", "\x00", "a" * 100_000, "%", "_", "'", '"; --', "\ud800", "ﬀ½٣Ⅷ", "9" * 300, "{id}", "a\nb"],
    "array": [[], [""], ["\x00"], ["a" * 100_000], ["x"] * 500, [["x"]], "text"],
}


async def test_extreme_arguments_break_nothing_and_are_answered_shortly(player: Any) -> None:
    for spec in player.host.catalog["workplace"].specs:
        [episode] = await player.start("workplace", "train", 0)
        steps = 0
        for parameter, schema in spec.input_schema["properties"].items():
            others = {name: "P-101" for name in spec.input_schema["required"] if name != parameter}
            for value in EXTREME[schema["type"]]:
                if steps % 50 == 49:
                    [episode] = await player.start("workplace", "train", 0)
                steps += 1
                result = await player.step(episode.episode, spec.name, **{**others, parameter: value})
                assert result.status is EpisodeStatus.RUNNING
                assert result.error is None or result.error.code in ("refused", "invalid_arguments")
                assert len(text_of(result.content)) < 4000


async def test_a_list_has_pages_and_says_when_there_are_no_more(player: Any) -> None:
    [episode] = await player.start("workplace", "train", 0)
    first = text_of((await player.step(episode.episode, "people_search", query="e")).content)
    second = text_of((await player.step(episode.episode, "people_search", query="e", page=2)).content)
    assert "Page 1 of" in first
    assert len(first.splitlines()) == len(second.splitlines()) == 11
    assert set(first.splitlines()[1:]).isdisjoint(second.splitlines()[1:])
    beyond = await player.step(episode.episode, "people_search", query="e", page=999)
    assert beyond.error is not None
    assert "the last one is" in text_of(beyond.content)


def case_of(office: Company, department: str, *, managing: bool = False) -> tuple[Employee, Case]:
    staff = [one for one in office.staff[department] if bool(office.reports.get(one.id)) is managing]
    return staff[0], Case(office, random.Random(1))


def desk_of(office: Company, me: Employee) -> Workplace:
    """An environment in which a person acts, without a task."""
    made = Workplace()
    opened = Store(office.image)
    row = opened.get("employees", me.id)
    assert row is not None
    made.desk = Desk(opened, row, office.today, office.domain)
    return made


def refused(environment: Workplace, tool: str, **arguments: Any) -> str:
    """The refusal of a call; empty if it was allowed."""
    app = next(one for one in (kind(environment) for kind in Workplace.toolsets) if hasattr(one, tool))
    try:
        getattr(app, tool)(**arguments)
    except ToolError as error:
        return str(error)
    return ""


def test_tools_keep_the_rights_of_the_person(office: Company) -> None:
    seller, _ = case_of(office, "Sales")
    engineer, _ = case_of(office, "Engineering")
    partner, _ = case_of(office, "HR")
    boss, _ = case_of(office, "Engineering", managing=True)
    report = office.reports[boss.id][0]
    foreign = next(one for one in office.deals if one.owner != seller.id)
    own = next(one for one in office.deals if one.owner == seller.id)
    finance = next(one for one in office.documents if one.folder == "/finance")
    sales, tech, hr, head = (desk_of(office, one) for one in (seller, engineer, partner, boss))

    assert refused(sales, "crm_set_stage", deal_id=own.id, stage="won") == ""
    assert "belongs to" in refused(sales, "crm_set_stage", deal_id=foreign.id, stage="won")
    assert "Sales only" in refused(tech, "crm_set_stage", deal_id=own.id, stage="won")
    assert "No access" in refused(sales, "ticket_update", ticket_id=office.tickets[0].id, status="done")
    assert refused(tech, "ticket_update", ticket_id=office.tickets[0].id, status="done") == ""
    assert "only HR" in refused(sales, "hr_salary", employee=seller.id)
    assert refused(hr, "hr_salary", employee=seller.id) == ""
    assert "No access" in refused(tech, "hr_balance", employee=seller.id)
    assert refused(head, "hr_balance", employee=report.id) == ""
    assert "may not read" in refused(tech, "files_read", document_id=finance.id)
    assert "No access" in refused(tech, "files_create", folder="/finance", title="x", body="x")
    assert "No access" in refused(hr, "contacts_delete", contact_id=office.contacts[0].id)
    other = next(mails[0] for one, mails in office.inbox.items() if one != seller.id)
    assert "in this mailbox" in refused(sales, "mail_read", mail_id=other.id)
    theirs = next(one for one in office.events_of[seller.id] if one.organizer != seller.id)
    assert "Only the organizer" in refused(sales, "calendar_cancel", event_id=theirs.id)
    for one in (sales, tech, hr, head):
        one.teardown()


def test_own_requests_cannot_be_decided_on(office: Company) -> None:
    boss, _ = case_of(office, "HR", managing=True)
    here = desk_of(office, boss)
    day = office.workday(3)
    assert refused(here, "hr_request_leave", first_day=day, last_day=day, kind="vacation") == ""
    assert "your own" in refused(
        here, "hr_decide_leave", leave_id=f"L-{office.next_number('leaves')}", decision="approved"
    )
    assert refused(here, "hr_claim_expense", day=day, amount=9, category="meals", description="x", receipt="yes") == ""
    assert "your own" in refused(
        here, "hr_decide_expense", expense_id=f"X-{office.next_number('expenses')}", decision="approved"
    )
    here.teardown()


def test_a_mail_reaches_its_recipients_and_the_sender_only(office: Company) -> None:
    here = desk_of(office, office.employees[5])
    reader = office.employees[6]
    assert refused(here, "mail_send", to=[reader.email, "x@y.example"], subject="Hi", body="Hi") == ""
    rows = here.desk.store.rows(
        "SELECT employee, folder FROM mailboxes WHERE mail = ?", f"M-{office.next_number('mails')}"
    )
    assert {(row["employee"], row["folder"]) for row in rows} == {
        (office.employees[5].id, "sent"),
        (reader.id, "inbox"),
    }
    assert "No colleague has" in refused(here, "mail_send", to=[f"no.one@{office.domain}"], subject="Hi", body="Hi")
    here.teardown()


def test_every_change_by_a_tool_is_in_the_audit_log(office: Company) -> None:
    here = desk_of(office, office.employees[5])
    assert refused(here, "ticket_comment", ticket_id=office.tickets[0].id, body="Hi") == ""
    [entry] = here.desk.store.rows("SELECT * FROM audit")
    assert (entry["employee"], entry["action"]) == (office.employees[5].id, "comment")
    here.teardown()


def test_searches_take_wildcards_and_quotes_as_text(office: Company) -> None:
    here = desk_of(office, office.employees[5])
    app = ContactsApp(here)
    for query in ("%", "_", "' OR '1'='1", '"', "\\"):
        assert app.people_search(query) == "No colleague matches all these words."
    here.teardown()


def test_a_state_goes_on_from_its_image(store: Store) -> None:
    store.delete("deals", "D-501")
    later = Store(store.image())
    assert later.get("deals", "D-501") is None
    assert later.changes() == []
    assert later.dump() == store.dump()
    later.close()


def test_a_copy_of_a_company_does_not_change_the_next_one(office: Company) -> None:
    first = Store(office.image)
    first.delete("deals", "D-501")
    first.close()
    second = Store(office.image)
    assert second.get("deals", "D-501") is not None
    second.close()


def test_tasks_show_the_same_date_wherever_they_run(office: Company) -> None:
    task = WorkplaceTask(id="x", difficulty="easy", company=office.name, template="mail/archive", draw=1)
    assert company_of(task).today == office.today
    assert office.today.weekday() < 5


@pytest.mark.parametrize(
    "body",
    [
        "Hi,\n\nit is D-501, on 2026-03-09.\n\nBest regards\n{me.name} ({me.id}, {me.email}, {me.phone})",
        "Dear all (a@b.example), as of {today}: D-501 / 2026-03-09.",
        "**D-501**; due: 2026-03-09!",
    ],
)
def test_greetings_and_signatures_are_no_strays(store: Store, office: Company, body: str) -> None:
    me = office.employees[5]
    send(store, office, body.format(me=me, today=office.today))
    found = outcome_of(store, office, office_goal(me, WANTED))
    assert found.met == found.items
