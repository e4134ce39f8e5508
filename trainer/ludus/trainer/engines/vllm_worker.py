"""The part of the file transfer that runs inside vLLM: it loads new weights from files in a shared folder.

    vllm serve … --worker-extension-cls ludus.trainer.engines.vllm_worker.WorkerExtension \\
                 --weight-transfer-config '{"backend": "ludus_file"}'

vLLM imports this module in its own environment, where Ludus need not be installed, so the module imports nothing else
of Ludus. The import registers the backend.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from safetensors import safe_open
from vllm.distributed.weight_transfer.base import (  # pyright: ignore[reportMissingImports]
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import (  # pyright: ignore[reportMissingImports]
    WeightTransferEngineFactory,
)
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead  # pyright: ignore[reportMissingImports]
from vllm.model_executor.model_loader.reload import (  # pyright: ignore[reportMissingImports]
    finalize_layerwise_reload,
    initialize_layerwise_reload,
)
from vllm.platforms import current_platform  # pyright: ignore[reportMissingImports]

BACKEND = "ludus_file"


@dataclass
class FileInit(WeightTransferInitInfo):  # type: ignore[misc]  # vLLM is untyped here
    """The parameters of the initialization: none."""


@dataclass
class FileUpdate(WeightTransferUpdateInfo):  # type: ignore[misc]
    """One file of an update; the model may be spread over several."""

    path: str
    """A safetensors file with whole tensors under the names of the Hugging Face checkpoint."""


class FileWeightTransfer(WeightTransferEngine):  # type: ignore[misc]
    """A backend that loads checkpoint files into the running model, in the way of vLLM's own backends."""

    init_info_cls = FileInit
    update_info_cls = FileUpdate

    def init_transfer_engine(self, init_info: FileInit) -> None:
        """Do nothing: there is no connection to open."""

    def start_weight_update(self) -> None:
        """Prepare the model for loading new weights layer by layer."""
        if current_platform.is_cpu():
            _pack_experts_again(self.model)
        initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: FileUpdate) -> None:
        """Load one file."""
        self.model.load_weights(_tensors(update_info.path))

    def finish_weight_update(self) -> None:
        """Convert the loaded weights to the form that the kernels need."""
        finalize_layerwise_reload(self.model, self.model_config)
        if current_platform.is_cpu():
            _pack_heads_again(self.model)

    def shutdown(self) -> None:
        """Do nothing: there is no connection to close."""


class WorkerExtension:
    """An empty class, named on vLLM's command line so that each of its workers imports this module."""


def _pack_experts_again(model: torch.nn.Module) -> None:
    """Make every mixture-of-experts layer build its kernel again when its weights are loaded.

    On the CPU the kernel needs packed weights, and vLLM 0.32 packs them only when it builds the kernel
    (`UnquantizedFusedMoEMethod._setup_kernel`): after an update it would read unpacked weights as packed ones.
    """
    for layer in model.modules():
        method: Any = getattr(layer, "quant_method", None)
        if method is not None and getattr(method, "moe_kernel", None) is not None:
            method.moe_kernel = None


def _pack_heads_again(model: torch.nn.Module) -> None:
    """Make the output layer pack its weights again, which may be those of the embedding.

    On the CPU the kernel reads a packed copy, and vLLM 0.32 makes one only for layers that have weights in the
    checkpoint: after an update a tied output layer would still read the copy of the old weights.
    """
    for layer in model.modules():
        if isinstance(layer, ParallelLMHead):
            method: Any = layer.quant_method
            method.process_weights_after_loading(layer)


def _tensors(path: str) -> Iterator[tuple[str, torch.Tensor]]:
    with safe_open(path, framework="pt") as file:
        for name in file.keys():
            yield name, file.get_tensor(name)


WeightTransferEngineFactory.register_engine(BACKEND, FileWeightTransfer)
