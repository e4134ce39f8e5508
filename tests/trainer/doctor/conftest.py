"""A small model, and checks that run in the test's own process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from ludus.trainer.doctor.context import Context, Setting
from ludus.trainer.doctor.model import build
from ludus.trainer.doctor.process import outcome

Outcome = Callable[..., dict[str, Any]]


class InProcess(Context):
    """Runs parts that follow one another here instead of in processes of their own."""

    def run(self, part: Callable[[Context], None]) -> None:
        part(self)


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built-in model for a CPU."""
    return build(tmp_path_factory.mktemp("model"), small=True)


@pytest.fixture
def check(model: Path, tmp_path: Path) -> Iterator[Outcome]:
    """`check("update")` runs a check and returns its outcome, as its process would write it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)

    def run(name: str, dtype: Any = "float32", folder_of_model: Path = model) -> dict[str, Any]:
        folder = tmp_path / name
        folder.mkdir()
        setting = Setting(str(folder_of_model), "cpu", small=True, dtype=dtype)
        setting.save(folder)
        return outcome(name, InProcess(setting, folder))

    yield run
    torch.set_num_threads(threads)
    if dist.is_initialized():  # by FSDP, which bfloat16 needs
        dist.destroy_process_group()
