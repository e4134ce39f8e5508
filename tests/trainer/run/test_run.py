"""Runs from the first rollout to the exported model, in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from families import make_family
from safetensors.torch import load_file
from toys import Even, Serve, groups_of, metrics_of, run, run_config

from ludus.protocol import Reward
from ludus.protocol.content import ImageBlock
from ludus.rendering import Renderer
from ludus.trainer.core.checkpoints import Checkpoints
from ludus.trainer.core.errors import CanaryError, ConfigError, LearningError, ModelError, RolloutError
from ludus.trainer.core.tiny import TEMPLATE
from ludus.trainer.learning.learner import Learner

pytestmark = pytest.mark.timeout(180)


class Same(Even):
    """Nothing matters."""

    def grade(self, answer: str) -> Reward:
        """Always the same."""
        return Reward.of(0.5)


class Picture(Even):
    """The prompt is a picture, which the policy cannot see."""

    def prompt(self) -> Any:
        """The word, and an image."""
        return [self.task.text, ImageBlock.of(b"no picture")]


async def test_a_run_says_once_that_the_policy_sees_words_for_an_image(
    serve: Serve, tiny: Path, tmp_path: Path
) -> None:
    for environment, times in ((Picture, 1), (Even, 0)):
        server, out = await serve(environment), tmp_path / environment.__name__
        await run(run_config(out, tiny, server.url, environments=[{"url": server.url}], steps=2))
        text = (out / "metrics.jsonl").read_text()
        assert text.count("an environment sent an image") == times
        records = (out / "rollouts.jsonl").read_text().splitlines()
        assert records
        assert all(("[image: image/png]" in record) == bool(times) for record in records)


async def test_a_hybrid_model_learns_with_its_engine_and_the_log_says_how_it_is_computed(
    serve: Serve, tmp_path: Path
) -> None:
    server, folder, out = await serve(Even), make_family("qwen3_next", tmp_path), tmp_path / "run"
    await run(run_config(out, folder, server.url, loss={"kl": "k3"}))
    lines = metrics_of(out)
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert all(line["canary/difference"] < 1e-4 for line in lines)
    assert all(line["loss/mismatch_k3"] < 1e-6 for line in lines)
    assert (out / "metrics.jsonl").read_text().count("each sample is computed in a row of its own") == 1


async def test_a_run_learns_evaluates_saves_and_exports(serve: Serve, tiny: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    server = await serve(Even)
    out = tmp_path / "run"
    await run(run_config(out, tiny, server.url, evaluation={"every": 2, "first": True, "samples": 2}))
    steps = metrics_of(out)
    assert [line["step"] for line in steps] == [1, 2, 3, 4]
    assert all(line["canary/difference"] < 1e-4 for line in steps)
    assert all(line["loss/mismatch_k3"] < 1e-6 for line in steps)
    assert all(line["rollout/staleness_max"] == 0 for line in steps)
    text = (out / "metrics.jsonl").read_text()
    assert text.count("evaluation/even/pass@2_low") == 3
    assert (out / "report.html").exists()
    assert sorted(path.name for path in (out / "checkpoints").iterdir()) == ["step-00000002", "step-00000004"]
    trained, first = (AutoModelForCausalLM.from_pretrained(path) for path in (out / "model", tiny))
    tokenizer = AutoTokenizer.from_pretrained(out / "model")
    assert trained.generation_config.eos_token_id == list(Renderer(tokenizer).stop)
    assert (trained.lm_head.weight - first.lm_head.weight).abs().max() > 1e-4


@pytest.mark.parametrize("family", ["glm4_moe", "gemma4_text"])
async def test_tensors_that_no_gradient_changes_are_kept_through_a_run_and_a_resume(
    serve: Serve, family: str, tmp_path: Path
) -> None:
    server, folder, out = await serve(Even), make_family(family, tmp_path), tmp_path / "run"
    for steps in (1, 2):
        await run(run_config(out, folder, server.url, steps=steps))
    assert all(line["canary/difference"] < 1e-4 for line in metrics_of(out))
    first, trained = (load_file(path / "model.safetensors") for path in (folder, out / "model"))
    assert first.keys() == trained.keys()
    kept = [name for name in first if "e_score" in name or "layer_scalar" in name]
    assert kept
    assert all(torch.equal(first[name], trained[name]) for name in kept)


async def test_every_step_learns_from_groups_of_its_own(serve: Serve, tiny: Path, tmp_path: Path) -> None:
    server = await serve(Even)
    for staleness in (0, 2):
        out = tmp_path / f"run-{staleness}"
        await run(run_config(out, tiny, server.url, steps=6, rollouts={"staleness": staleness}))
        groups = groups_of(out)
        assert sorted(groups) == [1, 2, 3, 4, 5, 6]
        assert sum(map(len, groups.values())) == len(set().union(*groups.values())) == 12
        assert all(line["rollout/staleness_max"] <= staleness for line in metrics_of(out))


async def test_a_resumed_run_goes_on_as_if_it_had_not_stopped(serve: Serve, tiny: Path, tmp_path: Path) -> None:
    server = await serve(Even)
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    await run(run_config(whole, tiny, server.url))
    await run(run_config(halves, tiny, server.url, steps=2))
    await run(run_config(halves, tiny, server.url, steps=4))
    assert groups_of(halves) == groups_of(whole)
    names = ("reward/mean", "loss/total", "loss/gradient_norm", "rollout/tokens")
    for one, other in zip(metrics_of(whole), metrics_of(halves), strict=True):
        assert {name: one[name] for name in names} == pytest.approx(
            {name: other[name] for name in names}, rel=1e-5, abs=1e-7
        )


async def test_a_resumed_run_writes_the_date_of_its_beginning(serve: Serve, tiny: Path, tmp_path: Path) -> None:
    server = await serve(Even)
    template = tmp_path / "dated.jinja"
    template.write_text(f"{{{{ strftime_now('%d %b %Y') }}}}\n{TEMPLATE}", "utf-8")
    out = tmp_path / "run"
    checkpoints = Checkpoints(out / "checkpoints", 9)
    clocks: list[str] = []
    for steps in (1, 2):
        model = {"chat_template": str(template)}
        await run(run_config(out, tiny, server.url, steps=steps, model=model, checkpoints={"every": 1}))
        path = checkpoints.latest()
        assert path is not None
        clocks.append(checkpoints.state(path)["clock"])
    assert clocks[0] == clocks[1]
    notes = (out / "metrics.jsonl").read_text("utf-8")
    assert f"the same time in the whole run: {clocks[0][:10]}" in notes


async def test_a_finished_run_started_again_does_nothing_new(serve: Serve, tiny: Path, tmp_path: Path) -> None:
    server = await serve(Even)
    config = run_config(tmp_path / "run", tiny, server.url, steps=2)
    await run(config)
    before = metrics_of(config.output)
    await run(config)
    assert metrics_of(config.output) == before


async def test_own_rollouts_are_a_warm_up(serve: Serve, tiny: Path, tmp_path: Path) -> None:
    server = await serve(Even)
    sft = {"own_groups": 2, "reward": 0.3, "steps": 3, "batch": 2, "learning_rate": 1e-3}
    config = run_config(tmp_path / "run", tiny, server.url, steps=1, sft=sft)
    await run(config)
    assert "warm-up: 3 batches" in (config.output / "metrics.jsonl").read_text()


@pytest.mark.suite("training", first=1)
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft's reading of it
@pytest.mark.parametrize("lora", [None, {"rank": 2}])
async def test_the_divergence_is_from_the_policy_that_the_warm_up_left_also_after_a_resume(
    serve: Serve, tiny: Path, tmp_path: Path, lora: dict[str, int] | None
) -> None:
    server = await serve(Even)
    given: dict[str, Any] = {
        "model": {"path": str(tiny), "lora": lora},
        "sft": {"own_groups": 2, "reward": 0.3, "steps": 3, "batch": 2, "learning_rate": 1e-2},
        "loss": {"kl": "k2", "kl_weight": 0.1},
        "optimizer": {"learning_rate": 1e-2},
    }
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    await run(run_config(whole, tiny, server.url, **given, steps=3))
    await run(run_config(halves, tiny, server.url, **given, steps=2))
    await run(run_config(halves, tiny, server.url, **given, steps=3))
    distances = [line["loss/kl"] for line in metrics_of(whole)]
    assert distances[0] < 1e-8
    assert distances[2] > 1e-6
    assert [line["loss/kl"] for line in metrics_of(halves)] == pytest.approx(distances, rel=1e-4)


@pytest.mark.suite("training", first=1)
@pytest.mark.parametrize("staleness", [0, 1])
async def test_an_adapter_is_trained_and_merged(serve: Serve, tiny: Path, tmp_path: Path, staleness: int) -> None:
    server = await serve(Even)
    lora = {"path": str(tiny), "lora": {"rank": 2}}
    config = run_config(tmp_path / "run", tiny, server.url, steps=2, model=lora, rollouts={"staleness": staleness})
    await run(config)
    assert all(line["canary/difference"] < 1e-4 for line in metrics_of(config.output))


async def test_a_wrong_model_path_is_reported_at_once(serve: Serve, tmp_path: Path) -> None:
    server = await serve(Even)
    with pytest.raises(ModelError, match="no such folder"):
        await run(run_config(tmp_path / "run", tmp_path / "nowhere", server.url))


@pytest.mark.suite("training")
async def test_an_unreachable_server_is_reported_at_once(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be used"):
        await run(run_config(tmp_path / "run", tiny, "http://127.0.0.1:9"))


async def test_an_environment_without_the_split_is_reported_at_once(serve: Serve, tiny: Path, tmp_path: Path) -> None:
    server = await serve(Even)
    with pytest.raises(ConfigError, match="'train', 'test'"):
        await run(run_config(tmp_path / "run", tiny, server.url, evaluation={"split": "held-out"}))


async def test_rewards_that_never_differ_stop_the_run(serve: Serve, tiny: Path, tmp_path: Path) -> None:
    server = await serve(Same)
    environments = [{"url": server.url, "name": "same"}]
    config = run_config(
        tmp_path / "run", tiny, server.url, environments=environments, rollouts={"max_dropped_groups": 4}
    )
    with pytest.raises(RolloutError, match=r"earned the same \(4 × reward 0.5\)"):
        await run(config)


async def test_steps_that_learn_nothing_from_rewards_are_counted_in_the_metrics(
    serve: Serve, tiny: Path, tmp_path: Path
) -> None:
    found = []
    for name, environment in (("same", Same), ("even", Even)):
        server = await serve(environment)
        config = run_config(
            tmp_path / name,
            tiny,
            server.url,
            environments=[{"url": server.url, "name": name}],
            rollouts={"drop_zero_variance": environment is not Same},
            steps=1,
        )
        await run(config)
        found.append([(line["loss/no_signal"], line["loss/zero_gradient"]) for line in metrics_of(config.output)])
    assert found == [[(1.0, 1.0)], [(0.0, 0.0)]]


async def test_weights_that_do_not_arrive_stop_the_run(
    serve: Serve, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await serve(Even)
    honest = Learner.weights

    def without_head(self: Learner, dtype: torch.dtype, **options: bool) -> object:
        return ((name, tensor * (1.5 if "lm_head" in name else 1.0)) for name, tensor in honest(self, dtype, **options))

    monkeypatch.setattr(Learner, "weights", without_head)
    with pytest.raises(CanaryError, match="did not arrive"):
        await run(run_config(tmp_path / "run", tiny, server.url))


async def test_a_loss_that_is_not_a_number_stops_the_run_with_the_last_checkpoint_kept(
    serve: Serve, tiny: Path, tmp_path: Path
) -> None:
    server = await serve(Even)
    config = run_config(tmp_path / "run", tiny, server.url, steps=2)
    await run(config)
    (checkpoint,) = (config.output / "checkpoints").iterdir()
    original = Learner.step

    def poisoned(self: Learner, *args: object, **options: object) -> object:
        with torch.no_grad():
            self.parameters[0].fill_(float("nan"))
        return original(self, *args, **options)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Learner, "step", poisoned)
        with pytest.raises(LearningError, match="nothing was changed"):
            await run(config.model_copy(update={"steps": 4}))
    assert checkpoint.exists()
    await run(config.model_copy(update={"steps": 4}))
    assert [line["step"] for line in metrics_of(config.output)] == [1, 2, 3, 4]


@pytest.mark.suite("training")
async def test_a_warm_up_ends_when_the_policy_earns_enough_also_after_a_resume(
    serve: Serve, tiny: Path, tmp_path: Path
) -> None:
    server = await serve(Even)
    sft = {"own_groups": 2, "steps": 100, "batch": 2, "learning_rate": 1e-3}
    for until, batches in ((0.0, 20), (2.0, 100)):
        config = run_config(tmp_path / f"until-{until}", tiny, server.url, steps=1, sft={**sft, "until": until})
        await run(config)
        text = (config.output / "metrics.jsonl").read_text()
        assert f"warm-up: {batches} batches" in text
        assert ("after batch 20 the policy's own episodes earn" in text) is (batches == 20)
        await run(config.model_copy(update={"steps": 2}))
        assert (config.output / "metrics.jsonl").read_text().count("batches of") == 1
