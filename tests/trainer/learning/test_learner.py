"""The learner in one process: what a step does, what it refuses, and what it hands to engines."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from learners import configure, make_batch, make_learner
from peft import PeftModel
from torch import Tensor
from torch._dynamo.utils import counters
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

from ludus.protocol.episodes import TaskRow
from ludus.protocol.trajectory import Trajectory
from ludus.trainer.core.config_learning import OptimizerConfig
from ludus.trainer.core.errors import LearningError
from ludus.trainer.core.probe import LIMITS
from ludus.trainer.core.samples import Rollout, RolloutGroup, RolloutStatus, Sample, TrainBatch
from ludus.trainer.learning import packing
from ludus.trainer.learning.attention import Layout
from ludus.trainer.learning.learner import Learner, scheduled_rate
from ludus.trainer.learning.losses import Metrics, Objective, Tokens, linear_objective, policy_objective
from ludus.trainer.learning.model import load_model, load_tokenizer

BATCH = make_batch(0)
SAMPLES = [item.sample for item in BATCH.samples]


@pytest.fixture
def learner(tiny: Path) -> Learner:
    return make_learner(configure(tiny))


def snapshot(learner: Learner) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in learner.weights(torch.float32)}


def total(learner: Learner, number: int) -> float:
    return float(learner.logprobs([SAMPLES[number]])[0].sum())


def praise(number: int, advantage: float) -> TrainBatch:
    item = BATCH.samples[number]
    return TrainBatch((replace(item, advantages=tuple(advantage * own for own in item.sample.mask)),))


@pytest.mark.suite("training", first=1)
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_a_step_moves_probability_towards_what_did_well(learner: Learner, advantage: float) -> None:
    before = total(learner, 0)
    learner.step(praise(0, advantage), policy_objective(learner.config.loss))
    assert (total(learner, 0) - before) * advantage > 1.0


def test_the_text_of_the_canary_is_computed_after_another_sample(
    learner: Learner, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = SAMPLES[0].ids
    separate = torch.tensor(learner.sequence_logprobs(ids))

    def mixing(lengths: Sequence[int], *arguments: Any) -> Layout:
        return Layout((sum(lengths),), *arguments)

    monkeypatch.setattr("ludus.trainer.learning.learner.Layout", mixing)
    mixed = torch.tensor(learner.sequence_logprobs(ids))
    assert float((mixed - separate).abs().mean()) > LIMITS["float32"][0]


@pytest.mark.suite("training")
def test_log_probabilities_are_those_of_the_model_as_transformers_computes_them(tiny: Path, learner: Learner) -> None:
    plain = AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float32)
    for sample, found in zip(SAMPLES, learner.logprobs(SAMPLES), strict=True):
        ids = torch.tensor(sample.ids)
        with torch.no_grad():
            every = plain(input_ids=ids[None]).logits[0, :-1].log_softmax(-1).gather(1, ids[1:, None])[:, 0]
        torch.testing.assert_close(found, every[torch.tensor(sample.mask[1:])], rtol=0, atol=2e-6)
        torch.testing.assert_close(torch.tensor(learner.sequence_logprobs(sample.ids)), every, rtol=0, atol=2e-6)


def test_a_shared_prompt_is_computed_once_and_changes_nothing(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def learned() -> tuple[dict[str, float], list[Tensor], int]:
        learner, rows = make_learner(configure(tiny)), []
        learner.policy.register_forward_pre_hook(lambda _, args: rows.append(len(args[0].ids)))
        gradients: list[Tensor] = []
        for parameter in learner.parameters:
            hooked: Any = parameter
            hooked.register_post_accumulate_grad_hook(lambda p: gradients.append(p.grad.clone()))
        return learner.step(BATCH, policy_objective(learner.config.loss)), gradients, sum(rows)

    metrics, gradients, tokens = learned()
    monkeypatch.setattr(packing, "SHARED", 10**9)
    expected, unshared, more = learned()
    assert more - tokens == 8 * 18, "of each three samples, two read no prompt"
    assert metrics == pytest.approx(expected, rel=1e-5)
    for one, other in zip(gradients, unshared, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6 * float(other.abs().max()))


def test_a_sample_without_sampled_tokens_has_no_log_probabilities(learner: Learner) -> None:
    silent = Sample((1, 2, 3), (False,) * 3, (0.0,) * 3, (-1,) * 3, (-1,) * 3)
    assert [len(values) for values in learner.logprobs([silent, SAMPLES[0]])] == [0, SAMPLES[0].sampled]


def test_an_empty_batch_changes_nothing(learner: Learner) -> None:
    before = snapshot(learner)
    assert learner.step(TrainBatch(()), policy_objective(learner.config.loss)) == {"loss/learning_rate": 1e-3}
    assert all(torch.equal(tensor, before[name]) for name, tensor in learner.weights(torch.float32))


def broken(batch: TrainBatch, *numbers: int) -> TrainBatch:
    samples = [
        replace(item, advantages=(float("nan"),) * len(item.advantages)) if number in numbers else item
        for number, item in enumerate(batch.samples)
    ]
    task = TaskRow(id="t7", split="train", index=0, fields={})
    trajectory = Trajectory(environment="e", split="train", task=task, policy="p", started_at=0.0, seconds=0.0)
    rollouts = [Rollout(RolloutStatus.COMPLETED, (item.sample,), 1.0, (1.0,), trajectory) for item in samples]
    return TrainBatch(tuple(samples), (RolloutGroup(41, "guess", "t7", tuple(rollouts), 0),))


@pytest.mark.suite("training")
def test_a_loss_that_is_not_a_number_names_its_samples_and_leaves_weights_and_optimizer_alone(tiny: Path) -> None:
    learner = make_learner(configure(tiny, optimizer={"tokens": 200}))
    objective = policy_objective(learner.config.loss)
    learner.step(BATCH, objective)
    before, state = snapshot(learner), copy.deepcopy(learner.state())
    with pytest.raises(LearningError) as caught:
        learner.step(broken(BATCH, 3, 8), objective)
    message = str(caught.value)
    assert "batch 1: the loss is nan" in message
    assert "sample 3 (group 41 of guess, task 't7', rollout 3); sample 8 (group 41 of guess" in message
    assert message.count("task 't7'") == 2
    assert all(torch.equal(tensor, before[name]) for name, tensor in learner.weights(torch.float32))
    assert_equal_trees(learner.state(), state)
    assert all(parameter.grad is None for parameter in learner.parameters)


def test_a_gradient_that_is_not_finite_is_found_where_the_loss_is(learner: Learner) -> None:
    def steep(tokens: Tokens) -> tuple[Tensor, Metrics]:
        loss, metrics = linear_objective(tokens)
        edge = torch.where(tokens.sample == target(tokens), tokens.logprobs - tokens.logprobs.detach(), 1.0)
        return loss + edge.clamp(min=0).sqrt().sum() * 0.0, metrics  # the slope of a root at 0 has no end

    def target(tokens: Tokens) -> int:
        return 2 if int(tokens.sample.max()) > 2 else 0 if len(tokens.sample) == SAMPLES[2].sampled else -1

    before = snapshot(learner)
    with pytest.raises(LearningError, match=r"the gradient is nan.*sample 2 "):
        learner.step(BATCH, steep)
    assert all(torch.equal(tensor, before[name]) for name, tensor in learner.weights(torch.float32))


def assert_equal_trees(ours: object, theirs: object) -> None:
    if isinstance(ours, dict):
        assert isinstance(theirs, dict)
        assert ours.keys() == theirs.keys()
        for key, value in ours.items():
            assert_equal_trees(value, theirs[key])
    elif isinstance(ours, Tensor):
        assert isinstance(theirs, Tensor)
        assert torch.equal(ours, theirs)
    else:
        assert ours == theirs


@pytest.mark.suite("training", first=1)
@pytest.mark.parametrize("model", [{}, {"lora": {"rank": 4}}, {"dtype": "bfloat16"}])
def test_a_learner_goes_on_exactly_from_its_state(tiny: Path, model: dict[str, object]) -> None:
    config = configure(tiny, model=model, optimizer={"warmup": 4}, steps=10)
    objective = policy_objective(config.loss)
    first = make_learner(config)
    first.step(BATCH, objective)
    kept = copy.deepcopy(first.state())
    second = make_learner(config)
    second.load_state(kept)
    expected = first.step(make_batch(1), objective)
    assert second.step(make_batch(1), objective) == expected
    assert_equal_trees(second.state(), first.state())
    first.parallel.close()


def test_the_reference_stays_while_the_policy_learns(tiny: Path) -> None:
    learner = make_learner(configure(tiny, loss={"kl": "k3"}))
    before = learner.logprobs(SAMPLES)
    metrics = [learner.step(BATCH, policy_objective(learner.config.loss))["loss/kl"] for _ in range(2)]
    assert metrics[0] == pytest.approx(0.0, abs=1e-6)
    assert metrics[1] > 1e-3
    for now, then in zip(learner.logprobs(SAMPLES, reference=True), before, strict=True):
        assert torch.equal(now, then)
    assert abs(float(learner.logprobs(SAMPLES)[0].sum() - before[0].sum())) > 1e-2


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft's reading of it
@pytest.mark.parametrize("model", [{}, {"lora": {"rank": 4}}])
def test_keep_reference_makes_the_current_policy_the_reference(tiny: Path, model: dict[str, Any]) -> None:
    learner = make_learner(configure(tiny, model=model, loss={"kl": "k3"}))
    loaded = learner.logprobs(SAMPLES)
    learner.step(BATCH, linear_objective, learning_rate=1e-2)
    warmed_up = learner.logprobs(SAMPLES)
    assert float((warmed_up[0] - loaded[0]).abs().max()) > 1e-2
    learner.keep_reference()
    metrics = [learner.step(BATCH, policy_objective(learner.config.loss))["loss/kl"] for _ in range(2)]
    assert metrics[0] == pytest.approx(0.0, abs=1e-6)
    assert metrics[1] > 1e-5
    policy = learner.logprobs(SAMPLES)
    for now, then in zip(learner.logprobs(SAMPLES, reference=True), warmed_up, strict=True):
        torch.testing.assert_close(now, then, rtol=0, atol=1e-6)
    for now, then in zip(learner.logprobs(SAMPLES), policy, strict=True):
        assert torch.equal(now, then)


def test_there_is_no_reference_where_nothing_asked_for_one(learner: Learner) -> None:
    with pytest.raises(ValueError, match="there is a reference only with"):
        learner.logprobs(SAMPLES, reference=True)


def test_the_proximal_policy_is_that_of_the_start_of_the_step_in_every_epoch(tiny: Path) -> None:
    config = configure(tiny, loss={"old_policy": "proximal"}, optimizer={"epochs": 2})
    learner = make_learner(config)
    start = torch.cat([learner.logprobs(SAMPLES)[i] for i in range(len(SAMPLES))])
    seen: list[tuple[Tensor, Tensor]] = []

    def watch(tokens: Tokens) -> tuple[Tensor, Metrics]:
        assert tokens.proximal is not None
        seen.append((tokens.proximal, tokens.logprobs.detach()))
        return policy_objective(config.loss)(tokens)

    learner.step(BATCH, watch)
    assert len(seen) == 2
    for proximal, _ in seen:
        torch.testing.assert_close(proximal, start, rtol=0, atol=2e-6)
    assert float((seen[1][1] - start).abs().max()) > 1e-2


def test_supervised_steps_are_single_and_leave_the_schedule_alone(tiny: Path) -> None:
    learner = make_learner(configure(tiny, optimizer={"epochs": 3, "warmup": 2}, loss={"kl": "k3"}))
    metrics = learner.step(BATCH, linear_objective, learning_rate=0.5e-3)
    assert metrics["loss/learning_rate"] == 0.5e-3
    assert metrics["loss/tokens"] == sum(weight != 0 for item in BATCH.samples for weight in item.weights)
    assert learner.step(BATCH, policy_objective(learner.config.loss))["loss/learning_rate"] == 0.5e-3
    assert learner.step(BATCH, policy_objective(learner.config.loss))["loss/learning_rate"] == 1e-3


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        ("constant", [0.5, 1.0, 1.0, 1.0, 1.0, 1.0]),
        ("linear", [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]),
        ("cosine", [0.5, 1.0, 1.0, 0.853553, 0.5, 0.146447]),
    ],
)
def test_the_learning_rate_rises_and_then_follows_its_schedule(schedule: str, rates: list[float]) -> None:
    config = OptimizerConfig.model_validate({"learning_rate": 1.0, "warmup": 2, "schedule": schedule})
    assert [scheduled_rate(config, step, 6) for step in range(6)] == pytest.approx(rates, abs=1e-6)


def test_only_matrices_decay(tiny: Path) -> None:
    learner = make_learner(configure(tiny, optimizer={"weight_decay": 0.1}))
    decayed = {id(p) for group in learner.optimizer.param_groups if group["weight_decay"] for p in group["params"]}
    assert {p.ndim for p in learner.parameters if id(p) in decayed} == {2}
    assert {p.ndim for p in learner.parameters if id(p) not in decayed} == {1}


def test_weights_have_the_names_and_values_of_a_checkpoint(tiny: Path, tmp_path: Path, learner: Learner) -> None:
    learner.step(BATCH, policy_objective(learner.config.loss))
    learner.export(load_tokenizer(learner.config.model), tmp_path / "out")
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32)
    expected = dict(plain.named_parameters())
    found = dict(learner.weights(torch.float32))
    assert list(found) == list(expected)
    assert all(torch.equal(tensor, expected[name]) for name, tensor in found.items())
    assert {tensor.dtype for _, tensor in learner.weights(torch.bfloat16)} == {torch.bfloat16}
    assert AutoTokenizer.from_pretrained(tmp_path / "out").chat_template


def test_tied_embeddings_come_once_and_learn_from_both_ends(tmp_path: Path, tiny: Path) -> None:
    shape: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "head_dim": 8}
    heads: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2}
    tied = Qwen3ForCausalLM(Qwen3Config(vocab_size=260, tie_word_embeddings=True, **shape, **heads))
    tied.save_pretrained(tmp_path)
    learner = make_learner(configure(tmp_path))
    before = snapshot(learner)
    learner.step(BATCH, policy_objective(learner.config.loss))
    assert "lm_head.weight" not in before
    after = snapshot(learner)
    unread = torch.ones(260, dtype=torch.bool)
    unread[list({token for sample in SAMPLES for token in sample.ids})] = False
    changed = (after["model.embed_tokens.weight"] != before["model.embed_tokens.weight"]).any(1)
    assert changed[unread].all(), "tokens that were only in the softmax change, too"


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft's reading of it
def test_merged_adapters_and_the_adapter_itself_give_the_learner_s_probabilities(tiny: Path, tmp_path: Path) -> None:
    config = configure(tiny, model={"lora": {"rank": 4, "alpha": 8.0}}, optimizer={"learning_rate": 1e-2})
    learner = make_learner(config)
    untouched = learner.logprobs(SAMPLES)
    for _ in range(2):
        learner.step(BATCH, policy_objective(config.loss))
    learned = learner.logprobs(SAMPLES)
    assert float((learned[0] - untouched[0]).abs().max()) > 1e-2
    learner.export(load_tokenizer(config.model), tmp_path / "merged")
    merged = make_learner(configure(tmp_path / "merged"))
    learner.save_adapter(tmp_path / "adapter")
    adapted = PeftModel.from_pretrained(load_model(configure(tiny).model), tmp_path / "adapter")
    base: Any = adapted.get_base_model()
    base.set_attn_implementation("sdpa")
    with torch.no_grad():
        row = torch.tensor([SAMPLES[0].ids])
        by_adapter = adapted(input_ids=row).logits[0, :-1].log_softmax(-1).gather(1, row[0, 1:, None])[:, 0]
    for found, expected in zip(merged.logprobs(SAMPLES), learned, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(torch.tensor(learner.sequence_logprobs(SAMPLES[0].ids)), by_adapter, rtol=0, atol=1e-5)
    for found, expected in zip(learner.logprobs(SAMPLES, reference=True), untouched, strict=True):
        assert torch.equal(found, expected)
    assert [name for name, _ in learner.weights(torch.float32)] == [name for name, _ in merged.weights(torch.float32)]


@pytest.fixture
def rounded(tiny: Path) -> Iterator[Learner]:
    learner = make_learner(configure(tiny, model={"dtype": "bfloat16"}))
    yield learner
    learner.parallel.close()


def test_in_bfloat16_the_master_weights_keep_what_rounding_would_lose(learner: Learner, rounded: Learner) -> None:
    objective: Objective = policy_objective(learner.config.loss)
    ours, theirs = rounded.step(BATCH, objective), learner.step(BATCH, objective)
    assert ours["loss/total"] == pytest.approx(theirs["loss/total"], abs=2e-3)
    rounded.sequence_logprobs(SAMPLES[0].ids)  # a forward pass without backward must not leave its copies behind
    weights = dict(rounded.weights(torch.float32))
    assert any(not torch.equal(tensor, tensor.bfloat16().float()) for tensor in weights.values())
    assert weights.keys() == snapshot(learner).keys()
    before = rounded.sequence_logprobs(SAMPLES[0].ids)
    rounded.step(BATCH, objective)
    assert rounded.sequence_logprobs(SAMPLES[0].ids) != before


@pytest.mark.suite("training")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # torch's own, while it traces
def test_compiled_layers_compute_the_same_and_are_traced_once_for_all_lengths(
    tiny: Path, learner: Learner, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch._dynamo.reset()
    counters.clear()
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))  # code takes minutes
    compiled = make_learner(configure(tiny, model={"compile": True}))
    objective = policy_objective(learner.config.loss)
    traced = []
    for seed in range(2):
        ours, theirs = compiled.step(make_batch(seed), objective), learner.step(make_batch(seed), objective)
        assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-4)
        traced.append(counters["frames"]["ok"])
    assert traced[0] == traced[-1] > 0
