"""Loading and writing models: what is wrong with a path is said at once, and an export is whole or not there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from ludus.trainer.core.config import LoraConfig, ModelConfig
from ludus.trainer.core.errors import ModelError
from ludus.trainer.learning.model import export, load_model, load_tokenizer


@pytest.fixture
def copied(tiny: Path, tmp_path: Path) -> Path:
    """A folder with the model, to spoil."""
    return Path(shutil.copytree(tiny, tmp_path / "copied"))


def config(path: Path | str, **options: Any) -> ModelConfig:
    return ModelConfig(path=str(path), **options)


@pytest.mark.parametrize("path", ["/no/such/folder", "./models/mine", "~/nothing-here", "plain", "a/b/c"])
def test_a_folder_that_is_not_there_is_named(path: str) -> None:
    with pytest.raises(ModelError, match=rf"model.path = '{path}': there is no such folder"):
        load_model(config(path))


def test_a_name_that_the_hub_does_not_give_is_refused() -> None:
    with pytest.raises(ModelError, match=r"model.path = 'ludus-nobody/no-such-model'.*Hugging Face hub"):
        load_model(config("ludus-nobody/no-such-model"))


def test_a_folder_without_configuration_is_no_model(copied: Path) -> None:
    (copied / "config.json").unlink()
    for load in (load_model, load_tokenizer):
        with pytest.raises(ModelError, match=r"has no config.json"):
            load(config(copied))


def test_a_folder_without_weights_is_no_model(copied: Path) -> None:
    (copied / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"has no \*.safetensors"):
        load_model(config(copied))


def test_weights_that_end_early_are_an_error(copied: Path) -> None:
    whole = (copied / "model.safetensors").read_bytes()
    (copied / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_model(config(copied))


def test_a_missing_tensor_is_not_made_up(copied: Path) -> None:
    tensors = load_file(copied / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"], tensors["lm_head.weight"]
    save_file(tensors, copied / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"has no weights for lm_head.weight and 1 others"):
        load_model(config(copied))


def test_a_model_without_tokenizer_or_template_says_what_to_do(copied: Path, tmp_path: Path) -> None:
    (copied / "chat_template.jinja").unlink()
    with pytest.raises(ModelError, match=r"no chat template.*model.chat_template"):
        load_tokenizer(config(copied))
    template = tmp_path / "mine.jinja"
    template.write_text("{{ messages[0].content }}!")
    settings = config(copied, chat_template=template)
    template.unlink()
    with pytest.raises(ModelError, match=r"model.chat_template = .*mine.jinja.* cannot be read"):
        load_tokenizer(settings)
    template.write_text("{{ messages[0].content }}!")
    found = load_tokenizer(config(copied, chat_template=template))
    assert found.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False) == "hi!"
    (copied / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match="the tokenizer cannot be loaded"):
        load_tokenizer(config(copied, chat_template=template))
    (copied / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match="has no tokenizer"):
        load_tokenizer(config(copied, chat_template=template))


def test_adapters_leave_the_base_frozen_and_wrong_targets_are_named(tiny: Path) -> None:
    model = load_model(config(tiny, lora=LoraConfig(rank=2)))
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert trained == {name for name, _ in model.named_parameters() if ".lora_" in name}
    assert len(trained) == 2 * 7 * 2
    with pytest.raises(ModelError, match=r"model.lora.targets = \['query'\]"):
        load_model(config(tiny, lora=LoraConfig(targets=("query",))))


def test_master_weights_are_float32_whatever_was_saved(tiny: Path, tmp_path: Path) -> None:
    model = load_model(config(tiny))
    rounded = {name: tensor.to(torch.bfloat16) for name, tensor in model.state_dict().items()}
    export(model, load_tokenizer(config(tiny)), tmp_path / "out", rounded)
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == "bfloat16"
    assert next(AutoModelForCausalLM.from_pretrained(tmp_path / "out").parameters()).dtype == torch.bfloat16
    again = load_model(config(tmp_path / "out", dtype="bfloat16"))
    assert {parameter.dtype for parameter in again.parameters()} == {torch.float32}


def test_an_export_replaces_the_last_one_as_a_whole(tiny: Path, tmp_path: Path) -> None:
    model, tokenizer = load_model(config(tiny)), load_tokenizer(config(tiny))
    folder = tmp_path / "final"
    folder.mkdir()
    (folder / "leftover.txt").write_text("of the last run")
    export(model, tokenizer, folder, model.state_dict(), stop=(3, 1))
    settings = json.loads((folder / "generation_config.json").read_text("utf-8"))
    assert settings["eos_token_id"] == [3, 1], "engines stop where the trainer stopped"
    assert not (folder / "leftover.txt").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["final"]
    load_model(config(folder))


class Killed(BaseException):
    """The end of the process."""


class Killer:
    """Ends the process, as far as the code under test can see, before the change of folders with this number."""

    def __init__(self, patch: pytest.MonkeyPatch, number: int) -> None:
        self.left = number
        rename, rmtree = Path.rename, shutil.rmtree
        patch.setattr(Path, "rename", lambda one, other: self.call(rename, one, other))
        patch.setattr(shutil, "rmtree", lambda *arguments, **options: self.call(rmtree, *arguments, **options))

    def call(self, honest: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        if not self.left:
            raise Killed
        self.left -= 1
        return honest(*arguments, **options)


@pytest.mark.suite("training", first=2)
@pytest.mark.parametrize("exchanges", [True, False])
@pytest.mark.parametrize("number", range(4))
def test_an_export_that_is_killed_at_any_moment_leaves_a_whole_model(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, exchanges: bool
) -> None:
    model, tokenizer, folder = load_model(config(tiny)), load_tokenizer(config(tiny)), tmp_path / "final"
    export(model, tokenizer, folder, model.state_dict())
    if not exchanges:
        monkeypatch.setattr("ludus.trainer.learning.model._exchange", lambda *_: False)
    with monkeypatch.context() as patch:
        Killer(patch, number)
        with pytest.raises(Killed):
            export(model, tokenizer, folder, model.state_dict())
    assert folder.exists() or not exchanges
    load_model(config(folder if folder.exists() else tmp_path / "final.old"))
    export(model, tokenizer, folder, model.state_dict())
    load_model(config(folder))
    assert [path.name for path in tmp_path.iterdir()] == ["final"]


def test_an_export_that_fails_leaves_what_was_there(tiny: Path, tmp_path: Path) -> None:
    model, tokenizer = load_model(config(tiny)), load_tokenizer(config(tiny))
    (tmp_path / "a file").write_text("")
    with pytest.raises(ModelError, match="cannot be written to"):
        export(model, tokenizer, tmp_path / "a file" / "final", model.state_dict())
    assert (tmp_path / "a file").read_text() == ""
