"""The part of the checks that runs inside vLLM's worker: checksums of the weights that arrive, and of those it holds.

vLLM imports this module in its own environment, where Ludus need not be installed, so it imports only modules that the
check copies next to it. Importing `vllm_worker` registers the transfer of files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

import ludus.trainer.engines.vllm_worker  # noqa: F401
from ludus.trainer.doctor.checksums import checksum


class Probe:
    """Methods that vLLM adds to its worker; `/collective_rpc` calls them by name."""

    def ludus_record(self) -> None:
        """Keep checksums of the tensors that the next weight updates hand to the model."""
        model: Any = self.get_model()  # type: ignore[attr-defined]  # of the worker
        received: dict[str, str] = {}
        self.ludus_received = received
        load = type(model).load_weights

        def load_weights(weights: Iterable[tuple[str, torch.Tensor]]) -> Any:
            return load(model, recorded(weights, received))

        model.load_weights = load_weights

    def ludus_weights(self) -> dict[str, Any]:
        """Return the checksums of what arrived since `ludus_record`, and of what the model holds now."""
        model: Any = self.get_model()  # type: ignore[attr-defined]
        return {"received": self.ludus_received, "held": dict(held(model))}


def recorded(
    weights: Iterable[tuple[str, torch.Tensor]], received: dict[str, str]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the weights, and put the checksum of each into `received`."""
    for name, tensor in weights:
        received[name] = checksum(tensor)
        yield name, tensor


def held(model: Any) -> Iterator[tuple[str, str]]:
    """Yield the name and the checksum of each tensor that the model holds in the checkpoint's form.

    Layers that vLLM joins (q, k and v; gate and up) are taken apart, and the padding of the vocabulary is left out.
    Weights that a kernel has packed in its own way cannot be compared, and are left out.
    """
    joined: dict[str, list[str]] = getattr(model, "packed_modules_mapping", {})
    for path, layer in model.named_modules():
        owner, _, kind = path.rpartition(".")
        for name, parameter in layer.named_parameters(recurse=False):
            if parameter.numel() == 0 or parameter.is_meta:
                continue
            if hasattr(layer, "cpu_linear") and name == "weight":
                continue  # on the CPU the kernel has its own copy
            sizes = getattr(layer, "output_sizes", None)
            if kind in joined and sizes is not None and sum(sizes) == parameter.shape[0]:
                parts = zip(joined[kind], parameter.split(list(sizes)), strict=True)
                yield from ((f"{owner}.{part}.{name}", checksum(tensor)) for part, tensor in parts)
            elif (rows := getattr(layer, "org_vocab_size", None)) is not None:
                yield f"{path}.{name}", checksum(parameter[:rows])
            else:
                yield f"{path}.{name}", checksum(parameter)
