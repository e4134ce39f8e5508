"""Checksums of tensors, to compare weights bit by bit without sending them back."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from ludus.trainer.doctor.context import CheckFailed


def checksum(tensor: Tensor) -> str:
    """Return a checksum of a tensor's dtype, shape and bits."""
    flat = tensor.detach().contiguous().cpu().flatten()
    digest = hashlib.blake2b(f"{tensor.dtype} {tuple(tensor.shape)} ".encode(), digest_size=16)
    digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def checksums(tensors: Iterable[tuple[str, Tensor]]) -> dict[str, str]:
    """Return the checksum of each tensor by name."""
    return {name: checksum(tensor) for name, tensor in tensors}


def require_equal(sent: Mapping[str, str], found: Mapping[str, str], where: str) -> int:
    """Compare checksums by name, and return how many were compared.

    Args:
        sent: of all tensors of the learner.
        found: of those that the engine could report.
        where: what `found` describes, for messages.

    Raises:
        CheckFailed: a tensor differs, or none could be compared.
    """
    both = [name for name in sent if name in found]
    different = [name for name in both if sent[name] != found[name]]
    if different:
        raise CheckFailed(
            f"{len(different)} of {len(both)} tensors are not equal bit by bit {where}: {', '.join(different[:4])}"
        )
    if not both:
        raise CheckFailed(f"no tensor could be compared {where}: the names are different")
    return len(both)
