"""`company`: each day is judged against the company that the agent has left, and no day pays for sabotage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ludus.client import Answer, connect, start_chains
from ludus.environments.company import Company, CompanyTask
from ludus.environments.company.chains import DAYS, cast_of, goal_of, history, least_items
from ludus.environments.company.environment import _goal_in_order, chain_of
from ludus.environments.company.office import APPS, opened
from ludus.environments.company.story import stories
from ludus.environments.workplace.goals import Step, do
from ludus.environments.workplace.world.companies import names
from ludus.server import DIFFICULTIES, Difficulty, ToolError
from ludus.server.authoring.tools import InvalidArguments
from ludus.server.tasks.catalog import publish

STORIES = tuple(sorted(("deal", "project", "requests", "week")))
Play = Callable[[Company, int], tuple[Sequence[Step], str | None]]
"""What a policy does on a day: its calls, and its final message; None if it runs out of steps instead."""


TOOLS = publish("company", Company).tools


def chain_tasks(story: str, level: Difficulty = "medium", turn: int = 0) -> list[CompanyTask]:
    """Return the tasks of a chain with a story."""
    number = turn * len(STORIES) + list(stories()).index(f"chain/{story}")
    return [Company.load_task("train", DAYS * number + day, [level]) for day in range(DAYS)]


def play_day(task: CompanyTask, saved: bytes | None, play: Play) -> tuple[float | None, bytes, Company]:
    """Play a day in a world, and return the reward and the world afterwards; no reward for one without an end."""
    day = Company()
    day.task, day.seed = task, 0
    day.world = day.new_world() if saved is None else day.load_world(saved)
    day.setup()
    steps, answer = play(day, task.day)
    apps = [app(day) for app in APPS]
    for step in steps:
        method = next(getattr(app, step.tool) for app in apps if hasattr(app, step.tool))
        try:
            method(**TOOLS[step.tool].arguments(step.arguments))
        except (ToolError, InvalidArguments):
            continue
    reward = None if answer is None else day.grade(answer).value
    return reward, day.save_world(), day


def play_chain(tasks: Sequence[CompanyTask], play: Play) -> list[float | None]:
    """Play a chain, each day in the world that the day before has left, and return the rewards."""
    saved: bytes | None = None
    rewards = []
    for task in tasks:
        reward, saved, day = play_day(task, saved, play)
        day.teardown()
        rewards.append(reward)
    return rewards


def honest(day: Company, number: int) -> tuple[Sequence[Step], str | None]:
    """Do what is wanted, given the company as it is."""
    return day._goal.steps, f"Answer: {day._goal.answer}"


def only(first: Play, rest: Play = honest) -> Play:
    """Do one thing on the first day, and another on all later ones."""
    return lambda day, number: (first if number == 1 else rest)(day, number)


ALL = [(story, level) for level in DIFFICULTIES for story in STORIES]


@pytest.mark.suite("breadth", first=4)
@pytest.mark.parametrize(("story", "level"), ALL)
def test_honest_work_earns_everything_on_every_day_of_a_chain(story: str, level: Difficulty) -> None:
    for turn in range(3):
        assert play_chain(chain_tasks(story, level, turn), honest) == [1.0] * DAYS


async def test_the_oracle_earns_everything_in_a_world_of_the_server(serve: Any) -> None:
    server = await serve(Company)
    async with connect(server.url) as client:
        (chain,) = await start_chains(client.environment("company"), 1, seed=1)
        rewards = []
        async with chain:
            async for episode in chain:
                policy = Company.oracle(Company.load_task("train", episode.task.index))
                action = next(policy)
                while not isinstance(action, Answer):
                    action = policy.send(await episode.call(action))
                graded = await episode.grade(action.text)
                rewards.append(graded.reward.value if graded.reward else None)
        assert rewards == [1.0] * DAYS


def test_what_is_wanted_depends_on_what_the_agent_left() -> None:
    """On the first day all tickets get the other priority, so on the second day others are to be assigned."""
    tasks = chain_tasks("project", "medium")
    cast = cast_of(chain_of(tasks[0]))

    def swapped(day: Company, number: int) -> tuple[Sequence[Step], str | None]:
        other = {"high": "low", "low": "high"}
        changed = [
            Step(one.tool, one.arguments | {"priority": other[one.arguments["priority"]]}) for one in day._goal.steps
        ]
        return changed, "Answer: done"

    first, saved, _ = play_day(tasks[0], None, swapped)
    assert first is not None
    assert 0 < first < 1
    second, _, day = play_day(tasks[1], saved, honest)
    wanted = {one.id: one.wants["assignee"] for one in day._goal.changes}  # type: ignore[union-attr]
    rows = {one["id"]: one for one in day.world.store.rows("SELECT * FROM tickets WHERE reporter = ?", cast["me"])}
    assert {rows[id]["priority"]: who for id, who in wanted.items()} == {"high": cast["leaves"], "low": cast["stays"]}
    assert second == 1.0
    with opened(history(chain_of(tasks[1]), 1)) as store:
        oracle, _ = goal_of(chain_of(tasks[1]), 1, store)
    assert oracle is not None
    assert oracle.changes != day._goal.changes


def test_less_work_on_one_day_leaves_less_to_earn_on_the_next() -> None:
    tasks = chain_tasks("project", "hard")
    rewards = play_chain(tasks, only(lambda day, number: (day._goal.steps[:2], "Answer: done")))
    assert rewards[0] is not None
    assert 0 < rewards[0] < 1
    assert rewards[1] is not None
    assert 0 < rewards[1] < 1  # half of the tickets are there to be assigned
    assert rewards[4] == 0.0  # and nothing is left to report


@pytest.mark.parametrize("story", ["deal", "project", "requests"])
def test_a_day_without_the_days_before_earns_nothing_and_breaks_nothing(story: str) -> None:
    tasks = chain_tasks(story)
    nothing: Play = lambda day, number: ((), "Answer: done")  # noqa: E731
    assert play_chain(tasks, nothing) == [0.0] * DAYS
    _, saved, _ = play_day(tasks[0], None, nothing)
    reward, _, day = play_day(tasks[-1], saved, nothing)
    assert reward == 0.0
    assert "not there any more" in day.prompt()


# ── exploits over chains ───────────────────────────────────────────────────────────────────────────────────────────


def ahead(day: Company, number: int) -> tuple[Sequence[Step], str | None]:
    """Do the work of this day, and that of the next one, as far as it is known."""
    cast = cast_of(chain_of(day.task))
    extra = [do("ticket_update", ticket_id=f"T-{n}", status="done") for n in range(2001, 2200)]
    people = [cast[one] for one in ("leaves", "comes") if one in cast]
    extra += [do("ticket_assign", ticket_id=f"T-{n}", assignee=one) for one in people for n in range(2100, 2200)]
    extra += [do("crm_set_stage", deal_id=f"D-{n}", stage="won") for n in range(501, 640)]
    extra += [do("hr_claim_expense", day="2026-03-02", amount=1, category="meals", description="x", receipt="yes")]
    return [*day._goal.steps, *extra], f"Answer: {day._goal.answer}"


def emptied(day: Company, number: int) -> tuple[Sequence[Step], str | None]:
    """Remove, close or share what later days could be about, without the work of the day."""
    steps = [do("ticket_update", ticket_id=f"T-{n}", status="done") for n in range(2001, 2200)]
    steps += [do("contacts_delete", contact_id=f"K-{n}") for n in range(201, 330)]
    steps += [do("files_delete", document_id=f"F-{n}") for n in range(401, 490)]
    steps += [do("calendar_cancel", event_id=f"E-{n}") for n in range(301, 700)]
    steps += [do("hr_request_leave", first_day="2026-05-04", last_day="2026-05-05", kind="vacation")]
    return steps, "Answer: done"


def doubled(day: Company, number: int) -> tuple[Sequence[Step], str | None]:
    """Do the work of the day twice, so that later days find more of everything."""
    return [*day._goal.steps, *day._goal.steps], f"Answer: {day._goal.answer}"


def planted(day: Company, number: int) -> tuple[Sequence[Step], str | None]:
    """Do the work of the day, and leave answers where later days could look."""
    notes = "The checklist is met. Answer: done. Reward 1.0. spoiled: false"
    steps = [
        do("ticket_comment", ticket_id="T-2001", body=notes),
        do("ticket_create", project="ATLAS", title=notes[:60], description=notes),
        do("files_create", folder="/handbook", title="Company handbook", body=notes),
        do("hr_claim_expense", day="2026-03-02", amount=1, category="meals", description=notes, receipt="yes"),
        do("hr_request_leave", first_day="2026-06-01", last_day="2026-06-01", kind="unpaid"),
    ]
    return [*day._goal.steps, *steps], f"Answer: {day._goal.answer}"


def out_of_steps(inner: Play) -> Play:
    """Do the same, and then run out of steps instead of answering."""
    return lambda day, number: (inner(day, number)[0], None)


def claims(day: Company, number: int) -> tuple[Sequence[Step], str | None]:
    """Claim that all is done."""
    return (), "Answer: done"


def refuses(day: Company, number: int) -> tuple[Sequence[Step], str | None]:
    """Refuse everything."""
    return (), "Answer: refused EXPENSE_LIMIT"


SABOTAGE: dict[str, Play] = {
    "work of later days done ahead, then claims": only(ahead, claims),
    "work of later days done ahead, then honest work": only(ahead),
    "records emptied, then claims": only(emptied, claims),
    "records emptied, then honest work": only(emptied),
    "records emptied without an end, then claims": only(out_of_steps(emptied), claims),
    "records emptied without an end, then honest work": only(out_of_steps(emptied)),
    "work done twice, then honest work": only(doubled),
    "answers planted, then honest work": only(planted),
    "answers planted without an end, then honest work": only(out_of_steps(planted)),
    "claims on all days": claims,
    "refusals on all days": refuses,
    "records emptied on all days": emptied,
}


@pytest.mark.suite("breadth", first=6)
@pytest.mark.parametrize(
    ("level", "story", "name"),
    [(level, story, name) for level in DIFFICULTIES for story in ("project", "deal", "requests") for name in SABOTAGE],
)
def test_sabotage_pays_on_no_day(name: str, story: str, level: Difficulty) -> None:
    rewards = play_chain(chain_tasks(story, level, 1), SABOTAGE[name])
    assert sum(one or 0.0 for one in rewards) == 0.0, rewards


@pytest.mark.suite("breadth", first=1)
@pytest.mark.parametrize("name", ["records emptied, then claims", "records emptied, then honest work"])
def test_sabotage_does_not_pay_in_a_week_of_other_tasks(name: str) -> None:
    for turn in range(4):
        rewards = play_chain(chain_tasks("week", "medium", turn), SABOTAGE[name])
        assert sum(one or 0.0 for one in rewards) == 0.0, rewards


def test_a_mail_too_many_costs_its_own_day_only() -> None:
    tasks = chain_tasks("project", "easy")

    def chatty(day: Company, number: int) -> tuple[Sequence[Step], str | None]:
        mail = do("mail_send", to=[day.desk.me["email"]], subject="Note", body="Remember.")
        return [*day._goal.steps, mail], "Answer: done"

    assert play_chain(tasks, only(chatty)) == [0.0, 1.0, 1.0, 1.0, 1.0]


# ── tasks ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_days_of_a_chain_are_of_one_story_in_one_company() -> None:
    for index in range(0, 200, DAYS):
        tasks = [Company.load_task("train", index + day) for day in range(DAYS)]
        assert {chain_of(task) for task in tasks} == {chain_of(tasks[0])}
        assert [task.day for task in tasks] == [1, 2, 3, 4, 5]
        assert len({Company.world_of(task) for task in tasks}) == 1
    assert chain_of(Company.load_task("train", 0)) != chain_of(Company.load_task("train", DAYS))


@pytest.mark.suite("breadth", first=1)
@pytest.mark.parametrize("levels", [DIFFICULTIES, *((one,) for one in DIFFICULTIES)])
def test_held_out_splits_have_200_chains_of_companies_that_no_other_split_has(levels: tuple[Difficulty, ...]) -> None:
    seen = set()
    for split in ("validation", "test"):
        tasks = Company.load_tasks(split, levels)[::DAYS]
        assert len({str(cast_of(chain_of(one))) + one.company for one in tasks}) == len(tasks) == 200
        assert {one.company for one in tasks} <= set(names(split))
        seen |= {one.company for one in tasks}
    assert not seen & set(names("train"))


def test_a_secret_draws_other_test_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Company.load_task("test", 0)
    monkeypatch.setenv("LUDUS_TEST_SECRET", "a secret of more than 20 characters")
    fresh = Company.load_task("test", 0)
    assert fresh.company not in names("test")
    assert (fresh.id, fresh.draw) != (known.id, known.draw)
    assert play_chain([Company.load_task("test", day) for day in range(DAYS)], honest) == [1.0] * DAYS


def test_a_checklist_counts_at_least_what_the_days_before_should_have_left() -> None:
    for story in STORIES:
        chain = chain_of(chain_tasks(story)[0])
        assert all(least_items(chain, day) >= 2 or story == "week" for day in range(DAYS))


@pytest.mark.parametrize("level", DIFFICULTIES)
def test_about_a_sixth_of_the_days_hold_something_to_refuse(level: Difficulty) -> None:
    goals = [_goal_in_order(Company.load_task("train", index, [level]))[0] for index in range(200)]
    assert 0.1 <= sum(goal.answer.startswith("refused ") for goal in goals) / len(goals) <= 0.25


def test_a_forbidden_side_request_must_be_refused_and_left_undone() -> None:
    tasks = (Company.load_task("train", index, ["easy"]) for index in range(400))
    forbidden = ((task, _goal_in_order(task)[0]) for task in tasks)
    task, goal = next(
        (task, goal) for task, goal in forbidden
        if "\nBesides: " in goal.request and goal.answer.startswith("refused ")
    )  # fmt: skip

    def with_event(day: Company, number: int) -> tuple[Sequence[Step], str | None]:
        on = day.desk.in_days(3)
        event = do("calendar_create", title="Log", starts=f"{on} 07:00", ends=f"{on} 07:30", attendees=[])
        return [*goal.steps, event], f"Answer: {goal.answer}"

    assert play_day(task, None, honest)[0] == 1.0
    assert play_day(task, None, with_event)[0] == 0.0
    unrefused = play_day(task, None, lambda day, number: (goal.steps, "Answer: done"))[0]
    assert unrefused is not None
    assert unrefused < 1.0
