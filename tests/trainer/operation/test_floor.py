"""The least torch that the `trainer` extra asks for has every call that the trainer makes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import torch
from torch.distributed.fsdp import FSDPModule

ROOT = Path(__file__).parents[3]
NEWEST_CALLS = {
    "set_gradient_divide_factor": (2, 8),  # 2.7 has set_reduce_scatter_divide_factor in its place
    "set_force_sum_reduction_for_comms": (2, 8),
}
"""Methods of FSDP that the trainer calls, and the first torch that has them (read in the wheels of 2.7.1 and 2.8.0)."""


def floor_of(package: str) -> tuple[int, ...]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for requirement in project["optional-dependencies"]["trainer"]:
        if found := re.fullmatch(rf"{package}>=([\d.]+)", requirement):
            return tuple(map(int, found[1].split(".")))
    raise AssertionError(f"no floor of {package}")


@pytest.mark.parametrize("call", NEWEST_CALLS)
def test_the_floor_has_the_newest_call(call: str) -> None:
    assert callable(getattr(FSDPModule, call))
    sources = "".join(path.read_text() for path in (ROOT / "trainer").rglob("*.py"))
    assert f".{call}(" in sources, "not called any more: the floor may be lower"
    assert floor_of("torch") >= NEWEST_CALLS[call]


def test_the_floor_is_no_higher_than_the_calls_need() -> None:
    assert floor_of("torch") == max(NEWEST_CALLS.values())
    assert tuple(map(int, torch.__version__.split("+")[0].split(".")[:2])) >= floor_of("torch")
