"""The arithmetic of a model, and the share of a GPU's arithmetic that an update uses (MFU)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

A100, HOPPER = 312e12, 989e12
PEAKS: Final[dict[str, float]] = {
    # NVIDIA A100 datasheet
    **dict.fromkeys(("NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB"), A100),
    **dict.fromkeys(("NVIDIA A100-PCIE-40GB", "NVIDIA A100 80GB PCIe"), A100),
    "NVIDIA A10": 125e12,  # NVIDIA A10 datasheet
    "NVIDIA A30": 165e12,  # NVIDIA A30 datasheet
    "NVIDIA A40": 149.7e12,  # NVIDIA A40 datasheet
    "NVIDIA L4": 121e12,  # NVIDIA L4 datasheet: 242 with sparsity
    "NVIDIA L40S": 362e12,  # NVIDIA L40S datasheet
    "NVIDIA H100 80GB HBM3": HOPPER,  # NVIDIA H100 datasheet: 1,979 with sparsity
    "NVIDIA H100 PCIe": 756e12,  # NVIDIA H100 PCIe product brief: 1,513 with sparsity
    "NVIDIA H100 NVL": 835e12,  # NVIDIA H100 datasheet: 1,671 with sparsity
    "NVIDIA H200": HOPPER,  # NVIDIA H200 datasheet: 1,979 with sparsity
    "NVIDIA H200 NVL": 835e12,  # NVIDIA H200 datasheet: 1,671 with sparsity
    "NVIDIA B200": 2250e12,  # NVIDIA HGX B200 datasheet: 36 PFLOPS with sparsity for eight
    "NVIDIA GeForce RTX 3090": 71e12,  # NVIDIA GA102 whitepaper, sums in float32
    "NVIDIA GeForce RTX 4090": 165.2e12,  # NVIDIA Ada whitepaper, sums in float32
}
"""Dense bfloat16 operations per second, by the name that the driver gives the whole GPU. A part of a GPU (MIG) has
another name, and none of these values."""


def training_flops(config: Any, lengths: Sequence[int], counted: int) -> float | None:
    """Return the operations of a forward and a backward pass over samples, as a causal model needs them.

    Counted are the matrices of the layers for every token, the pairs of tokens of a sample of which the later one sees
    the earlier one, and the output layer for the tokens that count in the loss. Recomputed activations do not count,
    and neither do prefixes that samples share: each sample counts in full.

    Args:
        config: transformers' configuration of a dense decoder.
        lengths: the number of tokens of each sample.
        counted: the number of tokens that count in the loss, of all samples.

    Returns:
        The number of operations; None for a mixture of experts, sliding windows, or another kind of layer.
    """
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
    if any(not isinstance(getattr(config, name, None), int) for name in names):
        return None
    if any(getattr(config, name, None) for name in ("num_experts", "num_local_experts", "n_routed_experts")):
        return None
    if set(getattr(config, "layer_types", None) or ("full_attention",)) != {"full_attention"}:
        return None
    width, heads = config.hidden_size, config.num_attention_heads
    dim = getattr(config, "head_dim", None) or width // heads
    keys = dim * (getattr(config, "num_key_value_heads", None) or heads)
    matrices = 2 * width * heads * dim + 2 * width * keys + 3 * width * config.intermediate_size
    pairs = sum(length * (length + 1) / 2 for length in lengths)
    layer = 2.0 * matrices * sum(lengths) + 4.0 * heads * dim * pairs
    forward: float = config.num_hidden_layers * layer + 2.0 * width * config.vocab_size * counted
    return 3 * forward
