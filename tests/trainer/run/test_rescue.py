"""A run that ends early loses nothing: signals at any moment, errors, tasks that are solved."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from toys import Even, Serve, groups_of, metrics_of, run, run_config

from ludus.protocol import Reward
from ludus.trainer.core.config import CheckpointConfig, TrainConfig
from ludus.trainer.core.errors import (
    CanaryError,
    CheckpointError,
    EngineError,
    Interrupted,
    LearningError,
    RolloutError,
)
from ludus.trainer.engines.base import WeightUpdate
from ludus.trainer.engines.torch import TorchEngine
from ludus.trainer.learning.learner import Learner
from ludus.trainer.worker import Worker

pytestmark = pytest.mark.timeout(180)


class Watched(Even):
    """Calls a function before each grade, which may change the reward."""

    name = "even"
    hook: ClassVar[Callable[[str], Reward | None]] = staticmethod(lambda split: None)

    def grade(self, answer: str) -> Reward:
        """What the hook says, or the share of even characters."""
        return type(self).hook(self.task.id.split("-")[0]) or super().grade(answer)


@pytest.fixture(autouse=True)
def unwatched() -> None:
    Watched.hook = staticmethod(lambda split: None)


def saved(config: TrainConfig) -> list[str]:
    folder = config.output / "checkpoints"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def notes(config: TrainConfig) -> list[str]:
    lines = map(json.loads, (config.output / "metrics.jsonl").read_text().splitlines())
    return [line["note"] for line in lines if "note" in line]


def evaluations(config: TrainConfig) -> list[int]:
    lines = map(json.loads, (config.output / "metrics.jsonl").read_text().splitlines())
    return [line["step"] for line in lines if any(name.startswith("evaluation/") for name in line)]


def raises_in(split: str, number: signal.Signals, after: int = 0) -> Callable[[str], None]:
    """A hook that sends this process a signal at a grade of a split, after so many others."""
    seen: list[str] = []

    def hook(found: str) -> None:
        if found == split:
            seen.append(found)
            if len(seen) == after + 1:
                signal.raise_signal(number)

    return hook


def outcome(error: pytest.ExceptionInfo[Any]) -> str:
    return "\n".join([str(error.value), *error.value.__notes__])


@pytest.mark.suite("training", first=1)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
async def test_a_signal_during_an_evaluation_saves_and_the_evaluation_is_made_after_all(
    serve: Serve, tiny: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    server = await serve(Watched)
    config = run_config(tmp_path / "run", tiny, server.url, evaluation={"every": 3}, checkpoints={"every": 0})
    Watched.hook = staticmethod(raises_in("test", number))
    with pytest.raises(Interrupted) as error:
        await run(config)
    assert error.value.exit_code == code
    assert f"stopped by {number.name}" in outcome(error)
    assert "step 3 is saved" in outcome(error)
    assert (saved(config), evaluations(config)) == (["step-00000003"], [])
    await run(config)
    assert [line["step"] for line in metrics_of(config.output)] == [1, 2, 3, 4]
    assert evaluations(config) == [3, 4]


async def test_a_signal_during_the_first_evaluation_keeps_the_warm_up(serve: Serve, tiny: Path, tmp_path: Path) -> None:
    server = await serve(Watched)
    sft = {"own_groups": 1, "steps": 3, "batch": 2, "learning_rate": 1e-3}
    config = run_config(tmp_path / "run", tiny, server.url, sft=sft, evaluation={"first": True}, steps=1)
    Watched.hook = staticmethod(raises_in("test", signal.SIGTERM))
    with pytest.raises(Interrupted) as error:
        await run(config)
    assert "step 0 is saved" in outcome(error)
    assert "step-00000000" in saved(config)
    await run(config)
    assert evaluations(config) == [0, 1]
    assert sum("warm-up: 3 batches" in note for note in notes(config)) == 1


async def test_a_warm_up_that_was_stopped_goes_on_as_if_it_had_not(
    serve: Serve, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await serve(Watched)
    sft = {"own_groups": 2, "steps": 5, "batch": 2, "learning_rate": 1e-3}
    whole, halves = (
        run_config(tmp_path / name, tiny, server.url, sft=sft, steps=1, checkpoints={"every": 0})
        for name in ("whole", "halves")
    )
    monkeypatch.setattr("ludus.trainer.warm_up.PROGRESS_SECONDS", 0.0)
    await run(whole)
    assert [note.partition(", loss")[0] for note in notes(whole)][:5] == [
        f"warm-up: batch {number} of 5" for number in range(1, 6)
    ]
    sft_step, seen = Worker.sft_step, []

    def stop_in_the_third(self: Worker, *arguments: Any) -> dict[str, float]:
        seen.append(arguments)
        if len(seen) == 3:
            signal.raise_signal(signal.SIGINT)
        return sft_step(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Worker, "sft_step", stop_in_the_third)
        # The learner's thread may not handle signals: the main thread does, at once.
        with pytest.raises(Interrupted) as error:
            await run(halves)
    done = len(seen)
    assert 3 <= done < 5
    assert f"warm-up step {done} is saved" in outcome(error)
    assert saved(halves) == [f"warm-up-{done:08d}"]
    seen.clear()
    with monkeypatch.context() as patch:

        def record(self: Worker, *given: Any) -> dict[str, float]:
            seen.append(given)
            return sft_step(self, *given)

        patch.setattr(Worker, "sft_step", record)
        await run(halves)
    assert len(seen) == 5 - done
    one, other = (metrics_of(config.output)[0] for config in (whole, halves))
    assert one["loss/gradient_norm"] == pytest.approx(other["loss/gradient_norm"], rel=1e-5)
    assert one["reward/mean"] == pytest.approx(other["reward/mean"])


async def test_preferences_that_were_stopped_keep_their_reference(
    serve: Serve, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ludus.trainer import warm_up
    from ludus.trainer.core.samples import Sample
    from ludus.trainer.learning.dpo import Pair

    def episode(*ids: int) -> Sample:
        n = len(ids)
        return Sample((1, 2, *ids), (False,) * 2 + (True,) * n, (0.0,) * (n + 2), (-1,) * (n + 2), (-1, -1, *[0] * n))

    pairs = [Pair(episode(3, 4, 5), episode(6, 7, 8)), Pair(episode(9, 10), episode(11, 12))]
    monkeypatch.setattr(warm_up, "preference_pairs", lambda *_, **__: pairs)
    server = await serve(Watched)
    played = tmp_path / "played.jsonl"
    played.touch()
    dpo = {"trajectories": [played], "steps": 6, "batch": 1, "learning_rate": 1e-3}
    whole, halves = (
        run_config(tmp_path / name, tiny, server.url, dpo=dpo, steps=0, checkpoints={"every": 2})
        for name in ("whole", "halves")
    )
    dpo_step, metrics = Worker.dpo_step, []

    def record(self: Worker) -> dict[str, float]:
        metrics.append(dpo_step(self))
        return metrics[-1]

    monkeypatch.setattr(Worker, "dpo_step", record)
    await run(whole)
    expected, metrics = metrics, []
    with monkeypatch.context() as patch:

        def die(self: Worker) -> dict[str, float]:
            if len(metrics) == 3:
                raise RuntimeError("the power went")
            return record(self)

        patch.setattr(Worker, "dpo_step", die)
        patch.setattr(Worker, "save", lambda self, step, *state: None if step == 3 else _save(self, step, *state))
        with pytest.raises(RuntimeError):
            await run(halves)
    assert saved(halves) == ["warm-up-00000002"]
    metrics.pop()
    await run(halves)
    assert [one["dpo/margin"] for one in metrics] == pytest.approx([one["dpo/margin"] for one in expected], rel=1e-5)


_save = Worker.save


async def test_groups_that_are_all_constant_end_the_run_with_what_it_learned(
    serve: Serve, tiny: Path, tmp_path: Path
) -> None:
    server = await serve(Watched)
    graded: list[str] = []

    def hook(split: str) -> Reward | None:
        graded.append(split)
        return Reward.of(0.25) if len(graded) > 24 else None

    Watched.hook = staticmethod(hook)
    config = run_config(
        tmp_path / "run", tiny, server.url, steps=100, rollouts={"max_dropped_groups": 4}, checkpoints={"every": 0}
    )
    with pytest.raises(RolloutError) as error:
        await run(config)
    steps = len(metrics_of(config.output))
    assert steps >= 2
    assert f"step {steps} is saved" in outcome(error)
    assert saved(config) == [f"step-{steps:08d}"]
    Watched.hook = staticmethod(lambda split: None)
    await run(config.model_copy(update={"steps": steps + 1}))
    assert sorted(groups_of(config.output)) == list(range(1, steps + 2))


async def test_a_task_that_is_solved_ends_the_run_well(serve: Serve, tiny: Path, tmp_path: Path) -> None:
    server = await serve(Watched)
    graded: list[str] = []

    def hook(split: str) -> Reward | None:
        graded.append(split)
        return Reward.of(1.0) if len(graded) > 24 else None

    Watched.hook = staticmethod(hook)
    config = run_config(
        tmp_path / "run", tiny, server.url, steps=100, rollouts={"max_dropped_groups": 4}, checkpoints={"every": 0}
    )
    await run(config)
    steps = len(metrics_of(config.output))
    assert saved(config) == [f"step-{steps:08d}"]
    assert evaluations(config) == [steps]
    assert (config.output / "model" / "config.json").exists()
    (note,) = (note for note in notes(config) if "the task is solved" in note)
    assert "last 4 groups earned the most there is to earn (even: 4 × reward 1)" in note
    assert f"after step {steps} of 100" in note


@pytest.mark.suite("training", first=1)
@pytest.mark.parametrize("where", ["generate", "update_weights"])
async def test_an_engine_that_fails_costs_no_step(
    serve: Serve, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    server = await serve(Watched)
    config = run_config(tmp_path / "run", tiny, server.url, rollouts={"retries": 0}, checkpoints={"every": 0})
    with monkeypatch.context() as patch:
        honest = getattr(TorchEngine, where)

        async def dying(self: TorchEngine, *arguments: Any, **options: Any) -> Any:
            update = arguments[0] if isinstance(arguments[0], WeightUpdate) else None
            if (update.version if update else self.version) >= 2:
                raise EngineError("the engine is dead")
            return await honest(self, *arguments, **options)

        patch.setattr(TorchEngine, where, dying)
        with pytest.raises(EngineError) as error:
            await run(config)
    assert "step 2 is saved" in outcome(error)
    await run(config)
    groups = groups_of(config.output)
    assert sum(map(len, groups.values())) == len(set().union(*groups.values()))
    assert metrics_of(config.output)[-1]["step"] == 4


async def test_a_mistake_in_our_own_code_in_mid_step_costs_no_step_and_no_group(
    serve: Serve, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await serve(Watched)
    whole, config = (
        run_config(tmp_path / name, tiny, server.url, checkpoints={"every": 0}) for name in ("whole", "hurt")
    )
    await run(whole)
    honest = Learner.step
    with monkeypatch.context() as patch:

        def step(self: Learner, *arguments: Any, **options: Any) -> Any:
            if self.batches == 2:
                raise RuntimeError("CUDA error: an illegal memory access")
            return honest(self, *arguments, **options)

        patch.setattr(Learner, "step", step)
        with pytest.raises(RuntimeError) as error:
            await run(config)
    assert "step 2 is saved" in outcome(error)
    await run(config)
    assert groups_of(config.output) == groups_of(whole.output)  # the batch that was handed out was played again
    names = ("reward/mean", "loss/total", "loss/gradient_norm")
    for one, other in zip(metrics_of(whole.output), metrics_of(config.output), strict=True):
        # How requests meet in the engine's passes depends on time, and decides how sums are rounded.
        assert [one[name] for name in names] == pytest.approx([other[name] for name in names], rel=1e-5, abs=1e-7)


async def test_half_an_update_is_not_saved(
    serve: Serve, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await serve(Watched)
    config = run_config(tmp_path / "run", tiny, server.url, checkpoints={"every": 1}, optimizer={"minibatches": 2})
    honest, updates = torch.optim.AdamW.step, []

    def step(self: torch.optim.AdamW, *arguments: Any, **options: Any) -> Any:
        updates.append(self)
        if len(updates) == 4:
            raise RuntimeError("out of memory")
        return honest(self, *arguments, **options)

    monkeypatch.setattr(torch.optim.AdamW, "step", step)
    with pytest.raises(RuntimeError) as error:
        await run(config)
    assert "nothing more is saved" in outcome(error)
    assert saved(config) == ["step-00000001"]


async def test_weights_that_are_not_finite_are_never_saved(
    serve: Serve, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await serve(Watched)
    config = run_config(tmp_path / "run", tiny, server.url, checkpoints={"every": 2})
    honest = Learner.step

    def step(self: Learner, *arguments: Any, **options: Any) -> Any:
        metrics = honest(self, *arguments, **options)
        if self.batches == 3:
            with torch.no_grad():
                self.parameters[0].view(-1)[0] = float("nan")
        return metrics

    monkeypatch.setattr(Learner, "step", step)
    with pytest.raises((CanaryError, LearningError)) as error:
        await run(config)
    assert "not finite any more" in outcome(error)
    assert saved(config) == ["step-00000002"]


async def test_a_disk_that_is_full_costs_no_earlier_checkpoint_and_hides_no_error(
    serve: Serve, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await serve(Watched)
    config = run_config(tmp_path / "run", tiny, server.url, steps=2)
    await run(config)

    def full(self: Worker, *arguments: Any) -> Path:
        raise CheckpointError("the checkpoint cannot be written: No space left on device")

    monkeypatch.setattr(Worker, "save", full)
    Watched.hook = staticmethod(raises_in("train", signal.SIGTERM, after=40))
    with pytest.raises(Interrupted) as error:
        await run(config.model_copy(update={"steps": 100, "checkpoints": CheckpointConfig(every=0)}))
    assert "is lost: the checkpoint cannot be written" in outcome(error)
    assert saved(config) == ["step-00000002"]


async def test_a_signal_before_the_first_step_is_no_traceback(
    serve: Serve, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ludus.trainer import train as module

    async def never(*_: Any) -> Any:
        import asyncio

        signal.raise_signal(signal.SIGINT)
        await asyncio.Event().wait()

    monkeypatch.setattr(module, "open_engine", never)
    server = await serve(Watched)
    config = run_config(tmp_path / "run", tiny, server.url)
    with pytest.raises(Interrupted) as error:
        await run(config)
    assert error.value.exit_code == 130
    assert "nothing to save" in outcome(error)
    assert saved(config) == []
