"""A run that does not learn stops, says why, and fails; one whose rewards still rise at its end says that."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from toys import Even, Serve, metrics_of, run, run_config

from ludus.protocol import Reward
from ludus.trainer.core.errors import DidNotLearn
from ludus.trainer.outcome import Progress

pytestmark = pytest.mark.timeout(180)
KEPT = {"drop_zero_variance": False}


class Lost(Even):
    """Nothing earns anything."""

    name = "even"
    reward_range = (0.0, 1.0)

    def grade(self, answer: str) -> Reward:
        """Always nothing."""
        return Reward.of(0.0)


class Won(Lost):
    """Everything earns everything."""

    name = "even"

    def grade(self, answer: str) -> Reward:
        """Always the most."""
        return Reward.of(1.0)


def notes_of(folder: Path) -> list[str]:
    lines = map(json.loads, (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return [line["note"] for line in lines if "note" in line]


async def test_a_run_whose_rewards_stay_at_0_stops_and_fails_with_its_reasons(
    serve: Serve, tiny: Path, tmp_path: Path
) -> None:
    server = await serve(Lost)
    with pytest.raises(DidNotLearn, match=r"^did not learn: all 32 episodes of the last 4 steps earned 0 \(") as error:
        await run(run_config(tmp_path, tiny, server.url, steps=50, max_idle_steps=4, rollouts=KEPT))
    assert "of the episodes were cut off: raise rollouts.max_tokens (now 6)" in str(error.value)
    assert len(metrics_of(tmp_path)) == 4
    assert any("the last 4 steps had nothing to learn from. The run ends after step 4 of 50" in one
               for one in notes_of(tmp_path))  # fmt: skip
    assert (tmp_path / "model").exists()


async def test_a_run_that_ends_before_it_would_be_stopped_fails_too(serve: Serve, tiny: Path, tmp_path: Path) -> None:
    server = await serve(Lost)
    with pytest.raises(DidNotLearn, match="24 episodes of the last 3 steps earned 0"):
        await run(run_config(tmp_path, tiny, server.url, steps=3, rollouts=KEPT))


async def test_groups_that_are_dropped_from_the_first_step_on_say_the_same(
    serve: Serve, tiny: Path, tmp_path: Path
) -> None:
    server = await serve(Lost)
    with pytest.raises(DidNotLearn) as error:
        await run(run_config(tmp_path, tiny, server.url, rollouts={"max_dropped_groups": 2}))
    assert str(error.value).splitlines()[-1].startswith("did not learn: ")


async def test_a_task_that_is_solved_from_the_beginning_is_no_failure(serve: Serve, tiny: Path, tmp_path: Path) -> None:
    server = await serve(Won)
    await run(run_config(tmp_path, tiny, server.url, steps=50, max_idle_steps=3, rollouts=KEPT))
    assert 3 <= len(metrics_of(tmp_path)) < 50, "a turn that is cut off may earn nothing"


async def test_a_run_ends_when_its_rewards_no_longer_rise(serve: Serve, tiny: Path, tmp_path: Path) -> None:
    server = await serve(Even)
    still = {"learning_rate": 1e-9}
    await run(run_config(tmp_path, tiny, server.url, steps=60, plateau=3, optimizer=still))
    assert 8 <= len(metrics_of(tmp_path)) < 60
    assert any("have reached no new height for 3 steps" in one for one in notes_of(tmp_path))


SECRET = '''
from random import Random
from ludus.server import Call, Environment, Private, Result, Split, Task, tool

class Number(Task):
    number: Private[int]

class Secret(Environment[Number]):
    """Say the number that nobody shows."""
    splits = {name: Split.lazy(lambda i: Number(id=f"{i}", number=Random(f"{name}{i}").randrange(10**9)), 20)
              for name in ("train", "test")}

    def prompt(self):
        return "Which number?"

    @tool
    def say(self, number: int) -> Result:
        """Say a number."""
        return Result("Done.", reward=float(number == self.task.number), finished=True)

    @classmethod
    def oracle(cls, task):
        yield Call("say", {"number": task.number})
'''


@pytest.mark.suite("training")
def test_the_last_line_and_the_exit_code_of_the_command_say_that_it_did_not_learn(tmp_path: Path) -> None:
    (tmp_path / "secret.py").write_text(SECRET, encoding="utf-8")
    small = ("--sft.steps=2", "--steps=9", "--max_idle_steps=3", "--rollouts.groups=2", "--rollouts.group_size=2",
             "--evaluation.tasks=2", "--checkpoints.export=false")  # fmt: skip
    train = ("train", "--tiny-from", "g.jsonl", "--serve", "secret.py:Secret", "--output=run", *small)
    for command, code in ((("demos", "secret.py:Secret", "--out", "g.jsonl"), 0), (train, 1)):
        done = subprocess.run(
            [Path(sys.executable).with_name("ludus"), *command], cwd=tmp_path, capture_output=True, text=True,
            timeout=170,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ludus: did not learn: all 12 episodes of the last 3 steps earned 0 (")
    assert "--tiny-from g.jsonl: 20 of 20 demonstrations call with values that nothing had shown before" in last
    assert "A model cannot learn these calls from what it reads" in last


# ---- rules


def progress(rewards: list[float], held_out: tuple[float, ...] = (), **sections: Any) -> Progress:
    config = run_config(Path("unused"), Path("unused"), "http://h", **sections)
    seen = Progress(config)
    for mean in rewards:
        seen.step((), {"reward/mean": mean, "reward/std": 0.1, "loss/no_signal": 0.0}, solved=False)
    for mean in held_out:
        seen.evaluation({"evaluation/even/mean": mean, "evaluation/even/pass@1": 0.0})
    return seen


WAVES = [0.01 * (step % 3) for step in range(40)]


def test_rewards_that_rise_at_the_end_are_reported_with_what_to_do() -> None:
    rising = [0.01 * step + wave for step, wave in enumerate(WAVES)]
    remark = progress(rising, (0.1, 0.3)).still_rising()
    assert remark is not None
    assert re.search(r"still rose when the run ended: 0\.\d+ → 0\.\d+ .* held-out 0\.100 → 0\.300", remark)
    assert "the same command with --steps=80 goes on from here" in remark
    ended = progress(rising, optimizer={"schedule": "linear"}).still_rising()
    assert ended is not None
    assert "the learning rate has reached its end" in ended


@pytest.mark.parametrize(
    ("rewards", "held_out"),
    [
        (WAVES, ()),
        ([0.5 - 0.01 * step for step in range(40)], ()),
        ([min(0.6, 0.03 * step) + wave for step, wave in enumerate(WAVES)], ()),
        ([0.01 * step for step in range(40)], (0.1, 0.3, 0.2)),
        ([0.1, 0.2, 0.3], ()),
    ],
)
def test_rewards_that_no_longer_rise_are_not_reported(rewards: list[float], held_out: tuple[float, ...]) -> None:
    assert progress(rewards, held_out).still_rising() is None


def test_a_slow_rise_and_a_dip_are_no_plateau() -> None:
    assert not progress([0.004 * step + wave for step, wave in enumerate(WAVES)], plateau=20).flat
    assert not progress([*[0.02 * n for n in range(30)], *[0.3] * 10, *[0.7] * 5], plateau=20).flat
    assert progress([0.3 + wave for wave in WAVES], plateau=20).flat
    assert not progress(WAVES[:24], plateau=20).flat


def test_a_resumed_run_knows_the_rewards_of_before() -> None:
    config = run_config(Path("unused"), Path("unused"), "http://h", plateau=20)
    records = [{"step": n, "reward/mean": 0.3} for n in range(24)] + [{"step": 24, "evaluation/even/mean": None}]
    seen = Progress(config, (), records)
    assert not seen.flat
    seen.step((), {"reward/mean": 0.3, "reward/std": 0.1}, solved=False)
    assert seen.flat
    assert seen.failure() is None


def test_remarks_about_demonstrations_are_the_first_reason() -> None:
    seen = Progress(run_config(Path("unused"), Path("unused"), "http://h"), ("no demonstration calls search",))
    for _ in range(3):
        seen.step((), {"reward/mean": 0.0, "reward/std": 0.0, "loss/no_signal": 1.0}, solved=False)
    failure = seen.failure()
    assert failure is not None
    assert "no demonstration calls search." in str(failure)
