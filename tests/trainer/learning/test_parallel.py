"""Ranks: shapes that do not fit are refused, and one process alone needs nothing of them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ludus.trainer.core.config import ParallelConfig
from ludus.trainer.core.errors import ConfigError
from ludus.trainer.learning.parallel import Parallel, clip_gradient, gradient_norm


@pytest.mark.parametrize("shape", [{"shard": 2}, {"replicate": 2}, {"replicate": 3, "shard": 1}])
def test_a_shape_that_is_not_the_number_of_processes_is_refused(shape: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=r"replicate × shard = .* is not the number of processes, 1"):
        Parallel(ParallelConfig(**shape), "cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is there")
def test_a_gpu_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"needs GPU 0, and torch sees 0.*device = \"cpu\""):
        Parallel(ParallelConfig(), "cuda")
    assert Parallel(ParallelConfig(), "auto").device.type == "cpu"


def test_one_process_is_the_first_and_hears_itself() -> None:
    parallel = Parallel(ParallelConfig(), "cpu")
    assert parallel.first
    assert parallel.broadcast("word") == "word"
    assert parallel.gather(3) == [3]
    parallel.close()
    assert not torch.distributed.is_initialized()


def test_the_gradient_is_scaled_to_the_limit_and_not_beyond() -> None:
    parameters = [nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(1))]
    parameters[0].grad, parameters[1].grad = torch.tensor([3.0, 0.0]), torch.tensor([0.0, 4.0, 0.0])
    norm = float(gradient_norm(parameters))
    assert norm == pytest.approx(5.0)
    clip_gradient(parameters, 10.0, norm)
    assert float(gradient_norm(parameters)) == pytest.approx(5.0)
    clip_gradient(parameters, 1.0, norm)
    assert float(gradient_norm(parameters)) == pytest.approx(1.0, rel=1e-5)
    assert parameters[2].grad is None
