"""Rubrics and `@reward` methods of an environment reach the trainer alone, at each step and at the end."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import pytest

from ludus.protocol import Component, Reward
from ludus.protocol import episodes as e
from ludus.protocol.errors import AuthoringError
from ludus.protocol.methods import Scope
from ludus.server import Environment, EpisodeHost, Private, Result, Task, tool
from ludus.server.auth.principal import Principal
from ludus.server.hosting.host import redacted
from ludus.server.rewards import Attempt, FromTask, Rubric, TakenStep, ToolCalled, Verdict, check, metric, reward
from ludus.server.rewards.attempt import resolve

Host = Callable[[type[Environment[Any]]], Awaitable[Any]]


class Sum(Task):
    question: str
    answer: Private[str]


class Asking(Environment[Sum]):
    """Add two numbers."""

    splits: ClassVar[Any] = {"train": [Sum(id="1", question="2+2", answer="4")]}

    def prompt(self) -> str:
        return f"What is {self.task.question}?"

    @tool
    def note(self, text: str) -> str:
        """Write something down."""
        return f"noted {text}"

    @tool(ends=True)
    def stop(self) -> Result:
        """Give up."""
        return Result("bye", reward=0.5, components={"early": 0.5})


right = check(lambda attempt: attempt.answer == attempt.task.answer, name="right")


async def test_a_rubric_makes_an_environment_gradable_and_its_reward_shows_rubric_and_version(playing: Host) -> None:
    class Graded(Asking):
        version = "7"
        rubric = [right]

    host = await playing(Graded)
    (episode,) = await host.start()
    result = await host.grade(episode, "4")
    assert result.reward == Reward(value=1.0, components={"right": Component(value=1.0)}, rubric="graded@7")
    assert result.info.reward == result.reward
    assert host.host.catalog["graded"].info.gradable


async def test_reward_methods_add_their_weight_to_the_rubric_and_metrics_are_only_reported(playing: Host) -> None:
    class Graded(Asking):
        rubric = Rubric([right], name="sums", version="2")

        @reward(weight=-0.25)
        def chatter(self, steps: tuple[TakenStep, ...]) -> Verdict:
            return Verdict(float(len(steps)), ", ".join(f"{s.tool}: {s.text} {s.error}" for s in steps))

        @metric
        async def length(self, answer: str, attempt: Attempt) -> int:
            assert attempt.prompt == "What is 2+2?"
            assert attempt.environment is self
            return len(answer)

    host = await playing(Graded)
    (episode,) = await host.start()
    await host.step(episode, 1, "note", text="a")
    await host.step(episode, 2, "shout")
    result = await host.grade(episode, "4")
    assert (result.reward.value, result.reward.rubric) == (0.5, "sums@2")
    assert result.reward.components["chatter"].evidence.startswith("note: noted a None, shout: There is no tool")
    assert result.reward.components["length"] == Component(value=1.0, weight=0.0)


async def test_a_tool_that_ends_the_episode_has_the_rubric_scored_with_its_own_reward(playing: Host) -> None:
    class Graded(Asking):
        rubric = [check(lambda attempt: [s.tool for s in attempt.steps] == ["note", "stop"], name="path")]

    host = await playing(Graded)
    (episode,) = await host.start()
    assert (await host.step(episode, 1, "note", text="a")).reward is None
    reward = (await host.step(episode, 2, "stop")).reward
    assert reward.value == 1.5
    assert {name: part.value for name, part in reward.components.items()} == {"early": 0.5, "path": 1.0}


async def test_process_rewards_judge_each_step_and_the_log_adds_them_up(playing: Host) -> None:
    class Graded(Asking):
        rubric = [right]

        @reward(when="step", weight=0.1)
        def brief(self, step: TakenStep, steps: tuple[TakenStep, ...]) -> Verdict:
            return Verdict(float(len(step.arguments["text"]) < 3), f"step {len(steps)}")

    host = await playing(Graded)
    (episode,) = await host.start()
    values = [(await host.step(episode, n, "note", text="x" * n)).reward.value for n in (1, 2, 3)]
    assert values == [0.1, 0.1, 0.0]
    await host.grade(episode, "4")
    log = await host.rewards(episode)
    assert [entry.source for entry in log.entries] == ["step", "step", "step", "grade"]
    assert log.total.value == pytest.approx(1.2)
    assert log.total.components["brief"].value == 2.0


async def test_steps_without_process_rewards_earn_nothing_rather_than_0(playing: Host) -> None:
    class Graded(Asking):
        rubric = [right]

    host = await playing(Graded)
    (episode,) = await host.start()
    assert (await host.step(episode, 1, "note", text="a")).reward is None
    assert (await host.rewards(episode)).entries == ()


async def test_an_own_grade_may_apply_the_rubric_and_change_what_it_says(playing: Host) -> None:
    class Graded(Asking):
        rubric = [right]

        async def grade(self, answer: str) -> Reward | None:
            assert await self.apply_rubric("wrong") == Reward(
                value=0.0, components={"right": Component(value=0.0)}, rubric="graded@0.1.0"
            )
            return await self.apply_rubric(answer.strip())

    host = await playing(Graded)
    (episode,) = await host.start()
    assert (await host.grade(episode, " 4 ")).reward.value == 1.0


async def test_an_unscored_rubric_leaves_the_episode_unscored_and_completed(playing: Host) -> None:
    class Graded(Asking):
        rubric = [right, check(lambda attempt: Verdict.unscored("no judge"), name="judge")]

    host = await playing(Graded)
    (episode,) = await host.start()
    result = await host.grade(episode, "4")
    assert result.info.reward.value is None
    assert result.info.reward.reason == "judge: no judge"
    assert result.info.reward.components["right"].value == 1.0
    assert str(result.info.status) == "completed"


async def test_without_the_scope_rewards_read_nothing_of_a_rubric_is_shown() -> None:
    class Graded(Asking):
        rubric = [right]

        @reward(when="step")
        def telling(self, step: TakenStep) -> Verdict:
            return Verdict(1.0, "secret evidence")

    blind = Principal("blind", frozenset({Scope.TASKS_READ, Scope.EPISODES_RUN}))
    async with EpisodeHost([Graded]) as host:
        started = await host.start(e.StartParams(environment="graded", split="train", key="a"), blind)
        episode = started.episodes[0].episode
        params = e.StepParams(episode=episode, step=1, tool="note", arguments={"text": "x"}, key="b")
        step = await host.step(params, blind)
        graded = await host.grade(e.GradeParams(episode=episode, answer="4", key="c"), blind)
        played = await host.play(
            (await host.start(e.StartParams(environment="graded", split="train", key="d"), blind)).episodes[0].episode,
            "note",
            {"text": "x"},
        )
    assert step.reward is None
    assert graded.reward is None
    assert graded.info.reward is None
    assert played.reward is not None, "the wire hides it"
    assert redacted(played).reward is None
    assert "secret" not in step.model_dump_json() + graded.model_dump_json()


async def test_the_runtime_sets_only_documented_attributes_of_an_instance() -> None:
    class Graded(Asking):
        rubric = [right]

        @reward(when="step")
        def noted(self) -> float:
            return 1.0

    principal = Principal.open()
    async with EpisodeHost([Graded]) as host:
        started = await host.start(e.StartParams(environment="graded", split="train", key="a"), principal)
        episode = started.episodes[0].episode
        instance = host.store.find(episode).instance
        await host.play(episode, "note", {"text": "x"})
        await host.grade(e.GradeParams(episode=episode, answer="4", key="b"), principal)
    assert instance.task is not None
    assert set(vars(instance)) <= {"task", "seed", "secrets", "sandboxes"}


async def test_an_instance_scores_its_own_episode_only() -> None:
    class Other(Asking):
        rubric = [right]

    class Graded(Asking):
        rubric = [right]

        async def grade(self, answer: str) -> float:
            own, other = await self.apply_rubric(answer), await Other().apply_rubric(answer)
            return 1.0 if own is not None and other is None else 0.0

    principal = Principal.open()
    async with EpisodeHost([Graded]) as host:
        started = await host.start(e.StartParams(environment="graded", split="train", key="a"), principal)
        params = e.GradeParams(episode=started.episodes[0].episode, answer="4", key="b")
        graded = await host.grade(params, principal)
    assert graded.reward is not None
    assert graded.reward.value == 1.0


async def test_plain_methods_run_in_a_thread_unless_the_environment_says_that_they_never_block(playing: Host) -> None:
    threads: list[bool] = []

    class Graded(Asking):
        @reward
        def where(self) -> float:
            threads.append(threading.current_thread() is threading.main_thread())
            return 1.0

    class Fast(Graded):
        blocking = False

    for cls in (Graded, Fast):
        host = await playing(cls)
        (episode,) = await host.start()
        assert (await host.grade(episode, "")).reward.value == 1.0
    assert threads == [False, True]


async def test_plain_methods_of_one_episode_never_run_at_the_same_time(playing: Host) -> None:
    class Graded(Asking):
        inside = 0

        def setup(self) -> None:
            self.met = threading.Event()

        def visit(self) -> float:
            self.inside += 1
            if self.inside == 2:
                self.met.set()
            met = self.met.wait(0.05)  # for what must not happen
            self.inside -= 1
            return float(not met)

        @reward
        def first(self) -> float:
            return self.visit()

        @reward
        def second(self) -> float:
            return self.visit()

    host = await playing(Graded)
    (episode,) = await host.start()
    assert (await host.grade(episode, "")).reward.value == 2.0


async def test_variants_may_have_a_rubric_of_their_own(playing: Host) -> None:
    class Graded(Asking):
        rubric = [right]
        variants: ClassVar[Any] = {"lenient": {"rubric": [check(lambda attempt: 1.0, name="any")]}}

    host = await playing(Graded)
    assert list(host.host.catalog) == ["graded", "graded-lenient"]
    params = e.StartParams(environment="graded-lenient", split="train", key="x")
    started = await host.host.start(params, Principal.open())
    assert list((await host.grade(started.episodes[0].episode, "?")).reward.components) == ["any"]


async def test_metrics_alone_leave_the_tools_rewards_as_they_are(playing: Host) -> None:
    class Graded(Asking):
        @metric
        def length(self, answer: str) -> int:
            return len(answer)

    host = await playing(Graded)
    (episode,) = await host.start()
    assert (await host.step(episode, 1, "stop")).reward.value == 0.5


def test_a_method_that_takes_what_cannot_be_given_is_refused() -> None:
    with pytest.raises(AuthoringError, match=r"style takes 'text'; .* takes any of attempt, answer, task, steps"):

        class Wrong(Asking):
            @reward
            def style(self, text: str) -> float:
                return 1.0

    with pytest.raises(AuthoringError, match="rubric is str; give a Rubric"):

        class Odd(Asking):
            rubric = "good"  # type: ignore[assignment]


def test_what_is_compared_is_found_in_the_task() -> None:
    attempt = Attempt(task=Sum(id="1", question="?", answer="4"))
    assert resolve(FromTask("answer"), attempt) == "4"
    assert resolve("4", attempt) == "4"


@pytest.mark.parametrize("order", [1, 1.0, "1", True])
async def test_checks_of_calls_see_the_arguments_that_the_tool_got(playing: Host, order: object) -> None:
    class Shop(Asking):
        rubric = Rubric([
            ToolCalled("refund", {"order": 1, "amount": 5}, at_least=0, at_most=0, name="forbidden"),
            ToolCalled("refund", {"order": lambda order: order < 100, "notify": True}, name="wanted"),
        ])  # fmt: skip

        @tool
        def refund(self, order: int, amount: float, notify: bool = True) -> str:
            """Pay it back."""
            return f"refunded {order}"

    host = await playing(Shop)
    (episode,) = await host.start()
    assert (await host.step(episode, 1, "refund", order=order, amount="5")).error is None
    components = (await host.grade(episode, "")).reward.components
    assert (components["forbidden"].value, components["wanted"].value) == (0.0, 1.0)
