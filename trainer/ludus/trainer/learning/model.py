"""The policy's network: loading it in Hugging Face format, checking that it can be used, and exporting it."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from ludus.trainer.core.config import LoraConfig, ModelConfig
from ludus.trainer.core.errors import ModelError
from ludus.trainer.learning.rows import set_attention, traits_of

HUB_SECONDS = 10.0
"""The maximum time for the Hugging Face hub to answer whether it has a model."""
_TOKENIZER_FILES = ("tokenizer.*", "vocab.*", "*.model", "*.tiktoken")
_HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "*.txt", *_TOKENIZER_FILES]


def model_folder(path: str) -> Path:
    """Return the local folder of a model: `path` itself, or the hub's model of that name, downloaded if needed.

    Raises:
        ModelError: there is no such folder, it has no configuration or weights, or the hub does not answer or has no
            such model.
    """
    folder = Path(path).expanduser()
    if not folder.is_dir():
        if folder.is_absolute() or path.startswith((".", "~")) or path.count("/") != 1:
            raise ModelError(f"model.path = {path!r}: there is no such folder; give a folder in Hugging Face format")
        folder = _from_hub(path)
    if not (folder / "config.json").is_file():
        raise ModelError(f"model.path = {path!r}: {folder} has no config.json; give a folder in Hugging Face format")
    if not any(folder.glob("*.safetensors")):
        raise ModelError(f"model.path = {path!r}: {folder} has no *.safetensors; save the weights in that format")
    return folder


def _from_hub(name: str) -> Path:
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        cached = Path(snapshot_download(name, local_files_only=True))
        if any(cached.glob("*.safetensors")):
            return cached
    except LocalEntryNotFoundError:
        pass
    try:  # ask first whether the model exists, because the download retries for most of a minute before it fails
        HfApi().model_info(name, timeout=HUB_SECONDS)
        return Path(snapshot_download(name, allow_patterns=_HUB_FILES))
    except HfHubHTTPError as error:
        reason = f"the Hugging Face hub refuses it ({error.response.status_code}); check the name, or set HF_TOKEN"
    except Exception as error:  # the hub's client passes on all errors of its HTTP library
        reason = f"the Hugging Face hub cannot be reached ({error}); download it first and give the folder"
    raise ModelError(f"model.path = {name!r}: no such folder, not in the cache, and {reason}")


def load_model(config: ModelConfig, device: torch.device | str = "cpu") -> PreTrainedModel:
    """Load the policy with float32 master weights on `device`, in evaluation mode, so that forward is deterministic.

    With `config.lora`, adapters are added and only they require gradients; the base weights keep their names, except
    that adapted layers are at `….base_layer`. The learner compiles the model.

    How its samples are put into rows is found here too: see `ludus.trainer.learning.rows`.

    Raises:
        ModelError: the path is wrong, weights are missing or broken, or the model cannot be computed: see
            `traits_of`.
    """
    folder = model_folder(config.path)
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
        )
    except Exception as error:  # a broken file can raise any of a dozen types
        raise ModelError(f"model.path = {config.path!r}: {folder} cannot be loaded: {error}") from error
    model: PreTrainedModel = loaded[0]
    info: dict[str, Any] = loaded[1]
    if info["missing_keys"]:
        missing = sorted(info["missing_keys"])
        raise ModelError(
            f"model.path = {config.path!r}: {folder} has no weights for {missing[0]} and {len(missing) - 1} others; "
            "save the whole model there"
        )
    nn.Module.to(model, device).eval()
    try:
        set_attention(model, traits_of(model).attention)
    except ModelError as error:
        raise ModelError(f"model.path = {config.path!r}: {error}") from error
    except Exception as error:  # a model that cannot compute even one sample can raise anything
        raise ModelError(
            f"model.path = {config.path!r}: a {model.config.model_type} model cannot compute a row of tokens: {error}"
        ) from error
    if config.lora is not None:
        _add_adapters(model, config.lora)
        nn.Module.to(model, device).eval()
    return model


def _add_adapters(model: PreTrainedModel, config: LoraConfig) -> None:
    try:
        from peft import LoraConfig as PeftConfig
        from peft import inject_adapter_in_model
    except ImportError as error:
        raise ModelError("model.lora needs peft: pip install 'ludus-rl[lora]'") from error
    alpha: Any = config.alpha  # peft declares an int, but accepts a float
    settings = PeftConfig(r=config.rank, lora_alpha=alpha, target_modules=list(config.targets), task_type="CAUSAL_LM")
    try:
        inject_adapter_in_model(settings, model)
    except ValueError as error:
        raise ModelError(f"model.lora.targets = {list(config.targets)}: {error}") from error


@contextmanager
def without_adapters(model: PreTrainedModel) -> Iterator[None]:
    """Run the body with the model as it was loaded: every adapter's scale is 0."""
    layers: list[Any] = [module for module in model.modules() if hasattr(module, "lora_A")]
    scalings = [dict(layer.scaling) for layer in layers]
    try:
        for layer in layers:
            layer.scaling = dict.fromkeys(layer.scaling, 0.0)
        yield
    finally:
        for layer, scaling in zip(layers, scalings, strict=True):
            layer.scaling = scaling


def save_adapter(model: PreTrainedModel, tensors: Mapping[str, torch.Tensor], folder: Path) -> None:
    """Write an adapter in PEFT's format, which vLLM reads. `tensors` are its weights, by their names in the model.

    Raises:
        ModelError: the folder cannot be written.
    """
    named = {
        f"base_model.model.{name.replace('.default.', '.')}": tensor.contiguous() for name, tensor in tensors.items()
    }
    settings: Any = model.peft_config["default"]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_file(named, folder / "adapter_model.safetensors")
        settings.save_pretrained(folder)
    except OSError as error:
        raise ModelError(f"the adapter cannot be written to {folder}: {error}") from error


def load_tokenizer(config: ModelConfig) -> PreTrainedTokenizerBase:
    """Load the model's tokenizer, with `config.chat_template` instead of its own template if that is set.

    Raises:
        ModelError: there is no tokenizer or no chat template.
    """
    folder = model_folder(config.path)
    if not any(any(folder.glob(pattern)) for pattern in _TOKENIZER_FILES):  # transformers would create an empty one
        raise ModelError(
            f"model.path = {config.path!r}: {folder} has no tokenizer; save tokenizer.json and "
            "tokenizer_config.json there"
        )
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except Exception as error:  # as for weights
        raise ModelError(f"model.path = {config.path!r}: the tokenizer cannot be loaded: {error}") from error
    if config.chat_template is not None:
        try:
            tokenizer.chat_template = config.chat_template.read_text(encoding="utf-8")
        except OSError as error:
            raise ModelError(f"model.chat_template = {str(config.chat_template)!r} cannot be read: {error}") from error
    if not tokenizer.chat_template:
        raise ModelError(
            f"model.path = {config.path!r}: the tokenizer has no chat template; take an instruction-tuned model, "
            "or give a Jinja file as model.chat_template"
        )
    return tokenizer


def export(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    tensors: Mapping[str, torch.Tensor],
    stop: Sequence[int] = (),
    check: Callable[[Path], None] | None = None,
) -> None:
    """Write a model and its tokenizer in Hugging Face format. Replace `folder` only after everything is written and
    checked.

    If the process is killed at any moment, a complete model is at `folder`, the old one or the new one. On file systems
    that cannot exchange two folders, it may be at `<folder>.old` instead, and the next export puts it back first.

    Args:
        model: its configuration is written.
        tokenizer: written to the same folder, with the template in use.
        folder: replaced if it exists.
        tensors: the weights from `Learner.weights` (gathered, adapters merged).
        stop: the ids that end a turn, for engines that read `generation_config.json`; the model's own if empty.
        check: called with `<folder>.new` before it replaces `folder`; what it raises leaves both as they are.

    Raises:
        ModelError: the disk is full, or the folder cannot be written.
    """
    fresh, old = folder.with_name(folder.name + ".new"), folder.with_name(folder.name + ".old")
    try:
        if old.exists() and not folder.exists():
            old.rename(folder)
        for leftover in (fresh, old):
            shutil.rmtree(leftover, ignore_errors=True)
        model.save_pretrained(fresh, state_dict=dict(tensors))
        settings: dict[str, Any] = json.loads((fresh / "config.json").read_text(encoding="utf-8"))
        settings["dtype"] = str(next(iter(tensors.values())).dtype).removeprefix("torch.")
        (fresh / "config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
        tokenizer.save_pretrained(fresh)
        if stop:
            _write_stop(fresh / "generation_config.json", stop)
        if check is not None:
            check(fresh)
        if not folder.exists():
            fresh.rename(folder)
        elif _exchange(fresh, folder):
            fresh.rename(old)
        else:
            folder.rename(old)
            fresh.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise ModelError(f"the model cannot be written to {folder}: {error}") from error


def _write_stop(file: Path, stop: Sequence[int]) -> None:
    settings: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    settings["eos_token_id"] = list(stop)
    file.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def _exchange(first_path: Path, second_path: Path) -> bool:
    """Exchange two folders in one step (Linux's renameat2). Return False where the system cannot."""
    try:
        renameat2 = ctypes.CDLL(None).renameat2
    except AttributeError:
        return False
    working_folder, exchange = -100, 2
    names = [os.fsencode(path.absolute()) for path in (first_path, second_path)]
    return bool(renameat2(working_folder, names[0], working_folder, names[1], exchange) == 0)
