"""The tensors of a checkpoint, and their names there, which can differ from transformers' names in memory.

For example, a mixture of experts has one tensor per projection in memory (`experts.gate_up_proj`) and one per expert in
the checkpoint (`experts.0.w1.weight`). Servers know only the checkpoint's names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from safetensors import safe_open
from torch import Tensor
from transformers import PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion

from ludus.trainer.core.errors import ModelError

_LAYER = re.compile(r".*\.\d+\.")


def kept_tensors(model: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors that `save_pretrained` writes, a tied one once: parameters and persistent buffers.

    A buffer is a part of the model that no gradient changes, such as the bias with which a router chooses its experts.
    """
    yielded: set[int] = set()
    for name, tensor in model.state_dict(keep_vars=True).items():
        if isinstance(tensor, Tensor) and id(tensor) not in yielded:
            yielded.add(id(tensor))
            yield name, tensor


def checkpoint_tensors(model: PreTrainedModel, tensors: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors under their checkpoint's names, as `save_pretrained` would write them.

    Args:
        model: the tensors' model, as `from_pretrained` returned it.
        tensors: the tensors by their names in the model. Those of one layer must be consecutive; they are converted
            together.
    """
    for _, some in groupby(tensors, key=lambda item: found[0] if (found := _LAYER.match(item[0])) else item[0]):
        yield from revert_weight_conversion(model, dict(some)).items()


def require_checkpoint_names(model: PreTrainedModel, folder: Path) -> None:
    """Raise ModelError if `checkpoint_tensors` would give a name that the checkpoint in `folder` does not have."""
    in_files: set[str] = set()
    for path in folder.glob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            in_files.update(file.keys())
    shapes = ((name, tensor.detach().to("meta")) for name, tensor in kept_tensors(model))
    strange = sorted({name for name, _ in checkpoint_tensors(model, shapes)} - in_files)
    if strange:
        raise ModelError(
            f"{folder}: {len(strange)} weights of this {model.config.model_type} model, such as {strange[0]}, have no "
            'such name in the checkpoint, so vLLM could not take them back. Use engine.kind = "torch", or '
            'engine.vllm.sync = "lora" with model.lora'
        )
