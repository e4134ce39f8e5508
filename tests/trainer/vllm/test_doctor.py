"""The check of `ludus doctor gpu` that needs vLLM, on the CPU: weights that arrive, and some that do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from vllm_servers import MARKS, VLLM

from ludus.trainer.doctor.context import Context, Setting
from ludus.trainer.doctor.model import build
from ludus.trainer.doctor.process import outcome
from ludus.trainer.engines import vllm_weights

pytestmark = MARKS


def check(folder: Path) -> dict[str, Any]:
    setting = Setting(str(build(folder / "model", small=True)), "cpu", small=True, dtype="float32", vllm=str(VLLM))
    setting.save(folder)
    return outcome("vllm-file", Context(setting, folder))


def test_weights_arrive_in_vllm_bit_by_bit_and_stale_ones_are_found(tmp_path: Path) -> None:
    found = check(tmp_path)
    assert (found["status"], found["reason"]) == ("passed", None)
    figures = found["figures"]
    assert (figures["tensors"], figures["tensors_received"]) == (25, 24), "a tied output layer is sent once"
    assert figures["tensors_compared_in_engine"] > 0
    assert figures["stale_weight_found"] is True
    assert figures["mean_difference"] <= 1e-4


def test_a_weight_that_changes_on_the_way_to_vllm_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def save(tensors: dict[str, torch.Tensor], path: Path) -> None:
        name = "model.layers.1.mlp.up_proj.weight"
        if name in tensors:
            tensors = {**tensors, name: tensors[name].nextafter(torch.tensor(torch.inf))}
        save_file(tensors, path)

    monkeypatch.setattr(vllm_weights, "save_file", save)
    found = check(tmp_path)
    assert found["status"] == "failed"
    assert "1 of 24 tensors are not equal bit by bit as vLLM received them" in found["reason"]
    assert "layers.1.mlp.up_proj" in found["reason"]
