"""Families of models: learner and engine compute each sample as transformers' plain code does, and an export, loaded
again, is the model that was trained, with every tensor of its checkpoint."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from families import BUFFERED, FAMILIES, HYBRID, LONELY, PLAIN, check_rows, make_family, plain_logprobs, plain_model
from learners import configure, make_batch, make_learner
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel

from ludus.trainer.core.config import TorchEngineConfig
from ludus.trainer.core.errors import ModelError
from ludus.trainer.core.probe import LIMITS
from ludus.trainer.engines.base import Sampling, WeightUpdate
from ludus.trainer.engines.torch import TorchEngine
from ludus.trainer.learning.checkpoint_names import require_checkpoint_names
from ludus.trainer.learning.losses import policy_objective
from ludus.trainer.learning.model import load_model, load_tokenizer

BATCH = make_batch(0)
IN_EVERY_RUN = ["qwen3_next", "nemotron_h", "gemma2", "nemotron", "gemma4_text", "qwen3"]
ORDERED = [*IN_EVERY_RUN, *(family for family in FAMILIES if family not in IN_EVERY_RUN)]


@pytest.mark.suite("training", first=len(IN_EVERY_RUN))
@pytest.mark.parametrize("family", ORDERED)
def test_rows_of_samples_give_each_what_it_has_alone(family: str, tmp_path: Path) -> None:
    folder = make_family(family, tmp_path)
    learner, plain = make_learner(configure(folder, optimizer={"tokens": 256})), plain_model(folder)
    assert learner.policy.traits.rows == ("shared" if family in BUFFERED | PLAIN else "single")
    check_rows(learner, plain, BATCH)


@pytest.mark.suite("training", first=len(IN_EVERY_RUN))
@pytest.mark.parametrize("family", ORDERED)
async def test_the_engine_in_this_process_samples_with_the_learners_probabilities(family: str, tmp_path: Path) -> None:
    folder = make_family(family, tmp_path)
    plain, model = plain_model(folder), load_model(configure(folder).model)
    engine = TorchEngine(model, TorchEngineConfig(slots=2, cache_tokens=1024), context=256)
    try:
        await asyncio.gather(*(play(engine, plain, number) for number in range(4)))
    finally:
        await engine.aclose()


async def play(engine: TorchEngine, plain: PreTrainedModel, number: int) -> None:
    """Play three turns; the third goes back behind what the second one sampled."""
    prompt = list(BATCH.samples[number % 2].sample.ids[:18])
    for turn in range(3):
        made = await engine.generate(prompt, Sampling(7, ()), seed=9 * number + turn, session=str(number))
        whole = [*prompt, *made.ids]
        with torch.no_grad():
            expected = plain_logprobs(plain, whole)
        torch.testing.assert_close(torch.tensor(made.logprobs), expected[len(prompt) - 1 :], rtol=1e-5, atol=5e-5)
        (all_of_them,) = (await engine.logprobs(whole)).values()
        torch.testing.assert_close(torch.tensor(all_of_them), expected, rtol=1e-5, atol=5e-5)
        prompt = [*whole, 5, 6, 7] if turn == 0 else [*whole[:-3], 8, 9]


@pytest.mark.suite("training", first=len(BUFFERED) + 2)
@pytest.mark.parametrize("family", [*BUFFERED, *PLAIN, *HYBRID, *LONELY])
def test_an_export_is_the_model_that_was_trained(family: str, tmp_path: Path) -> None:
    folder, out = make_family(family, tmp_path), tmp_path / "out"
    learner = make_learner(configure(folder))
    learner.step(BATCH, policy_objective(learner.config.loss))
    learner.export(load_tokenizer(learner.config.model), out)
    assert load_file(out / "model.safetensors").keys() == load_file(folder / "model.safetensors").keys()
    ids = BATCH.samples[0].sample.ids
    expected = torch.tensor(learner.sequence_logprobs(ids))
    again = torch.tensor(make_learner(configure(out)).sequence_logprobs(ids))
    torch.testing.assert_close(again, expected, rtol=0, atol=1e-6)
    with torch.no_grad():
        by_transformers = plain_logprobs(plain_model(out), ids)
    torch.testing.assert_close(by_transformers, expected, rtol=0, atol=1e-5)


@pytest.mark.suite("training", first=len(BUFFERED) + 2)
@pytest.mark.parametrize("family", [*BUFFERED, *PLAIN, *HYBRID, *LONELY])
def test_servers_get_every_tensor_of_the_checkpoint_with_its_values(family: str, tmp_path: Path) -> None:
    folder = make_family(family, tmp_path)
    learner, checkpoint = make_learner(configure(folder)), load_file(folder / "model.safetensors")
    require_checkpoint_names(learner.model, folder)
    sent = dict(learner.weights(torch.float32, as_checkpoint=True))
    assert sent.keys() == checkpoint.keys()
    assert [name for name, tensor in sent.items() if not torch.equal(tensor, checkpoint[name])] == []


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", [*BUFFERED, "nemotron_h", "qwen3_next"])
async def test_the_engine_in_this_process_gets_every_tensor(family: str, dtype: Any, tmp_path: Path) -> None:
    config = configure(make_family(family, tmp_path), model={"dtype": dtype})
    learner, model, ids = make_learner(config), load_model(config.model), BATCH.samples[0].sample.ids
    with torch.no_grad():
        for tensor in model.state_dict().values():
            tensor.zero_()
    engine = TorchEngine(model, TorchEngineConfig(cache_tokens=512), context=256, dtype=learner.dtype)
    try:
        await engine.update_weights(WeightUpdate(0, learner.weights(learner.dtype)))
        held = await engine.read_weights(dict)
        for name, tensor in learner.weights(learner.dtype):
            assert torch.equal(held[name], tensor), name
        (sampled,) = (await engine.logprobs(ids)).values()
        differences = torch.tensor(sampled) - torch.tensor(learner.sequence_logprobs(ids))
        assert float(differences.abs().mean()) <= LIMITS[dtype][0]
    finally:
        await engine.aclose()
        learner.parallel.close()


@pytest.mark.parametrize("family", ["gemma4_text", "glm4_moe", "qwen3"])
@pytest.mark.parametrize(
    "options", [{"dtype": "bfloat16"}, {"lora": {"rank": 2, "targets": ("q_proj", "o_proj")}}], ids=["bfloat16", "lora"]
)
def test_an_export_that_is_rounded_or_merged_is_compared_too(
    family: str, options: dict[str, Any], tmp_path: Path
) -> None:
    config = configure(make_family(family, tmp_path), model=options, optimizer={"learning_rate": 1e-2})
    learner = make_learner(config)
    learner.step(BATCH, policy_objective(config.loss))
    learner.export(load_tokenizer(config.model), tmp_path / "out")
    checkpoint, sent = load_file(tmp_path / "out" / "model.safetensors"), dict(learner.weights(learner.dtype))
    learner.parallel.close()
    for name, buffer in learner.model.named_buffers():
        if name in sent:
            assert torch.equal(checkpoint[name], buffer), "a buffer is never rounded"


def lose_buffers(tensors: dict[str, Tensor], folder: Path) -> None:
    for name in [name for name in tensors if "e_score" in name]:
        del tensors[name]


def change_a_buffer(tensors: dict[str, Tensor], folder: Path) -> None:
    tensors["model.layers.1.mlp.gate.e_score_correction_bias"][0] += 0.25


def keep_an_old_head(tensors: dict[str, Tensor], folder: Path) -> None:
    tensors["lm_head.weight"] += torch.randn_like(tensors["lm_head.weight"])


def change_the_configuration(tensors: dict[str, Tensor], folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["routed_scaling_factor"] *= 3
    (folder / "config.json").write_text(json.dumps(config))


def end_early(tensors: dict[str, Tensor], folder: Path) -> None:
    tensors["model.norm.weight"] = tensors["model.norm.weight"][:5]


BIAS = r"model\.layers\.1\.mlp\.gate\.e_score_correction_bias"
FAULTS: dict[Callable[[dict[str, Tensor], Path], None], str] = {
    lose_buffers: f"1 tensors are missing, such as {BIAS}; 1 tensors differ: {BIAS} by up to 0",
    change_a_buffer: f"1 tensors differ: {BIAS} by up to 0.25",
    keep_an_old_head: r"1 tensors differ: lm_head\.weight by up to \d.*log-probabilities of 63 tokens differ by \d",
    change_the_configuration: r": the log-probabilities of 63 tokens differ by 0\.\d+ nats",
    end_early: "it cannot be loaded",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_an_export_that_is_another_model_is_an_error_and_replaces_nothing(
    fault: Callable[[dict[str, Tensor], Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, out = configure(make_family("glm4_moe", tmp_path)).model, tmp_path / "out"
    learner, tokenizer = make_learner(configure(tmp_path / "glm4_moe")), load_tokenizer(config)
    learner.export(tokenizer, out)
    before = (out / "model.safetensors").read_bytes()
    right = PreTrainedModel.save_pretrained

    def save(self: PreTrainedModel, folder: Path, **options: Any) -> None:
        right(self, folder, **options)
        tensors = load_file(folder / "model.safetensors")
        fault(tensors, folder)
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    monkeypatch.setattr(PreTrainedModel, "save_pretrained", save)
    with pytest.raises(ModelError, match=rf"the export in .*out\.new is another model.*{FAULTS[fault]}"):
        learner.export(tokenizer, out)
    assert (out / "model.safetensors").read_bytes() == before
    monkeypatch.undo()
    learner.export(tokenizer, out)
    assert not (tmp_path / "out.new").exists()


@pytest.mark.suite("training", first=2)
@pytest.mark.parametrize("family", ["gemma3", "qwen3_5", "gemma4", "qwen3_5_moe"])
async def test_a_model_that_reads_images_is_trained_on_text(family: str, tmp_path: Path) -> None:
    folder, out = make_family(family, tmp_path), tmp_path / "out"
    learner, plain = make_learner(configure(folder, optimizer={"tokens": 256})), plain_model(folder)
    require_checkpoint_names(learner.model, folder)
    check_rows(learner, plain, BATCH)
    engine = TorchEngine(load_model(configure(folder).model), TorchEngineConfig(cache_tokens=1024), context=256)
    try:
        await play(engine, plain, 0)
    finally:
        await engine.aclose()
    learner.export(load_tokenizer(learner.config.model), out)
    before, after = (set(load_file(path / "model.safetensors")) for path in (folder, out))
    text = {name for name in before if "visual" not in name and "vision" not in name}
    assert len(after) == len(text if family.startswith("qwen") else before)


def test_the_page_names_every_family_that_was_tried() -> None:
    page = (Path(__file__).parents[3] / "docs" / "training.md").read_text(encoding="utf-8")
    rows = page.partition("### Which models")[2].partition("\n### ")[0].split("\n| ")[2:]
    named = [re.findall(r"`(\w+)`", row.partition(" | ")[2].partition(" |\n")[0]) for row in rows]
    assert named == [sorted(BUFFERED | PLAIN), sorted(HYBRID), sorted(LONELY)]
