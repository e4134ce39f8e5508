"""Checksums of tensors, to compare weights bit by bit without sending them back."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ludus.trainer.doctor.context import CheckFailed

if TYPE_CHECKING:  # vLLM's environment has no Ludus
    from ludus.trainer.learning.learner import Learner


def checksum(tensor: Tensor) -> str:
    """Return a checksum of a tensor's dtype, shape and bits."""
    flat = tensor.detach().contiguous().cpu().flatten()
    digest = hashlib.blake2b(f"{tensor.dtype} {tuple(tensor.shape)} ".encode(), digest_size=16)
    digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def checksums(tensors: Iterable[tuple[str, Tensor]]) -> dict[str, str]:
    """Return the checksum of each tensor by name."""
    return {name: checksum(tensor) for name, tensor in tensors}


def sent_checksums(learner: Learner, *, as_checkpoint: bool = False) -> dict[str, str]:
    """Return the checksums of the learner's weights as it sends them.

    A tied output layer is sent once, under the name of the embedding. It is in the result under its own name too, so
    that an engine which keeps a copy of it is found to have the same.
    """
    expected = checksums(learner.weights(learner.dtype, as_checkpoint=as_checkpoint))
    model: Any = learner.model
    names = {id(module): name for name, module in model.named_modules()}
    inner, outer = model.get_input_embeddings(), model.get_output_embeddings()
    if inner.weight is outer.weight:
        expected[f"{names[id(outer)]}.weight"] = expected[f"{names[id(inner)]}.weight"]
    return expected


def require_equal(
    expected: Mapping[str, str], actual: Mapping[str, str], where: str, *, all_of_them: bool = False
) -> int:
    """Compare checksums by name, and return how many were compared.

    Args:
        expected: of all tensors of the learner.
        actual: of those that the engine could report.
        where: what `actual` describes, for messages.
        all_of_them: whether `actual` must have every tensor that was sent, a tied one under either of its names.

    Raises:
        CheckFailed: a tensor differs or is missing, or none could be compared.
    """
    common = [name for name in expected if name in actual]
    different = [name for name in common if expected[name] != actual[name]]
    if different:
        raise CheckFailed(
            f"{len(different)} of {len(common)} tensors are not equal bit by bit {where}: {', '.join(different[:4])}"
        )
    lost = sorted({expected[name] for name in expected} - {expected[name] for name in common}) if all_of_them else []
    if lost:
        names = [name for name in expected if expected[name] in lost]
        raise CheckFailed(f"{len(names)} tensors are missing {where}: {', '.join(names[:4])}")
    if not common:
        raise CheckFailed(f"no tensor could be compared {where}: the names are different")
    return len(common)
