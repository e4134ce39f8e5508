"""Checkpoints: whole or not there. Run as a program, this file is one rank of the test that has two."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from ludus.trainer.core.checkpoints import MANIFEST, Checkpoints
from ludus.trainer.core.errors import CheckpointError

STATE = {"step": 3, "group": 17, "curriculum": {"train": [["t1", 0.5], ["t2", None]]}, "seconds": 1.5}


def learner(seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    update(model, optimizer)
    return model, optimizer


def update(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model(torch.randn(5, 8)).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def tensors_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": moments, "random": torch.get_rng_state(), "updates": 1}


def weights_of(model: nn.Module) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_training_continues_exactly_where_it_was_saved(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "run" / "checkpoints", keep=2)
    model, optimizer = learner(seed=1)
    path = checkpoints.save(3, STATE, tensors_of(model, optimizer))
    update(model, optimizer)
    expected = weights_of(model)

    other, its_optimizer = learner(seed=2)
    tensors = tensors_of(other, its_optimizer)
    assert checkpoints.latest() == path
    assert checkpoints.load(path, tensors) == STATE
    set_state_dict(other, its_optimizer, model_state_dict=tensors["model"], optim_state_dict=tensors["optimizer"])
    torch.set_rng_state(tensors["random"])
    update(other, its_optimizer)
    for mine, theirs in zip(weights_of(other), expected, strict=True):
        assert torch.equal(mine, theirs)


def test_only_the_newest_stay(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step in (1, 2, 10, 100):
        checkpoints.save(step, {"step": step}, {"w": torch.full((3,), float(step))})
    assert names(tmp_path) == ["step-00000010", "step-00000100"]
    tensors = {"w": torch.zeros(3)}
    latest = checkpoints.latest()
    assert latest is not None
    assert checkpoints.load(latest, tensors) == {"step": 100}
    assert tensors["w"].tolist() == [100.0] * 3


def test_a_folder_without_checkpoints_has_no_latest(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "absent", keep=1).latest() is None
    (tmp_path / "notes.txt").write_text("")
    assert Checkpoints(tmp_path, keep=1).latest() is None


def tear_data(path: Path) -> None:
    (data,) = path.glob("*.distcp")
    os.truncate(data, data.stat().st_size - 1)


def tear_metadata(path: Path) -> None:
    (path / ".metadata").unlink()


def tear_manifest(path: Path) -> None:
    os.truncate(path / MANIFEST, 20)


def lose_manifest(path: Path) -> None:
    (path / MANIFEST).unlink()


@pytest.mark.parametrize("tear", [tear_data, tear_metadata, tear_manifest, lose_manifest])
def test_a_torn_checkpoint_is_passed_over_and_written_again(tmp_path: Path, tear: Any) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    whole = checkpoints.save(1, {}, {"w": torch.ones(9)})
    torn = checkpoints.save(2, {}, {"w": torch.ones(9)})
    tear(torn)
    assert checkpoints.latest() == whole
    assert checkpoints.save(2, {}, {"w": torch.zeros(9)}) == torn
    assert checkpoints.latest() == torn
    assert names(tmp_path) == [whole.name, torn.name]


def test_what_a_killed_process_left_is_no_checkpoint_and_is_cleared_away(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=3)
    path = checkpoints.save(1, {}, {"w": torch.ones(2)})
    path.rename(tmp_path / ".writing-step-00000002")
    assert checkpoints.latest() is None
    checkpoints.save(3, {}, {"w": torch.ones(2)})
    assert names(tmp_path) == ["step-00000003"]


def test_a_step_is_written_once_and_a_new_run_can_clear_the_old_ones(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=1)
    path = checkpoints.save(5, {"of": "first"}, {"w": torch.ones(2)})
    before = (path / MANIFEST).stat().st_mtime_ns
    checkpoints.save(5, {"of": "second"}, {"w": torch.zeros(2)})
    assert (path / MANIFEST).stat().st_mtime_ns == before
    checkpoints.clear()
    assert checkpoints.latest() is None
    checkpoints.save(2, {}, {"w": torch.zeros(2)})
    assert names(tmp_path) == ["step-00000002"]


def test_the_one_just_written_stays_even_if_those_of_an_earlier_run_have_greater_numbers(tmp_path: Path) -> None:
    Checkpoints(tmp_path, keep=1).save(200, {}, {"w": torch.ones(2)})
    Checkpoints(tmp_path, keep=1).save(50, {}, {"w": torch.ones(2)})
    assert "step-00000050" in names(tmp_path)


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """The system refuses to let any file of this process grow beyond `size` bytes, as a full disk would."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(
    ("tensors", "state"),
    [({"w": torch.ones(2**18)}, {}), ({"w": torch.ones(2)}, {"groups": list(range(40_000))})],
    ids=["tensors", "state"],
)
def test_a_full_disk_costs_no_earlier_checkpoint(
    tmp_path: Path, tensors: dict[str, Tensor], state: dict[str, Any]
) -> None:
    checkpoints = Checkpoints(tmp_path, keep=1)
    path = checkpoints.save(1, STATE, {"w": torch.full((4,), 7.0)})
    with largest_file(2**16), pytest.raises(CheckpointError) as caught:
        checkpoints.save(2, state, tensors)
    said = str(caught.value)
    assert f"step 2 cannot be written to {tmp_path}" in said
    assert "File too large" in said
    assert f"needs about {sum(t.numel() * 4 for t in tensors.values()) / 2**20:,.1f} MiB" in said
    assert "MiB are free" in said
    assert names(tmp_path) == [path.name]
    kept = {"w": torch.zeros(4)}
    assert checkpoints.load(path, kept) == STATE
    assert kept["w"].tolist() == [7.0] * 4
    assert checkpoints.save(2, state, tensors).name in names(tmp_path)


class Raises:
    """What fails with an error of its own while it is written."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __reduce__(self) -> NoReturn:
        raise self.error


def test_no_space_left_is_said_in_a_sentence(tmp_path: Path) -> None:
    full = Raises(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    with pytest.raises(CheckpointError, match="No space left on device. It needs about 4.0 MiB"):
        Checkpoints(tmp_path, keep=1).save(1, {}, {"w": torch.ones(2**20), "x": full})
    assert names(tmp_path) == []


def test_an_interrupt_while_writing_is_an_interrupt_and_costs_nothing(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=1)
    path = checkpoints.save(1, {}, {"w": torch.ones(2)})
    with pytest.raises(KeyboardInterrupt):
        checkpoints.save(2, {}, {"w": Raises(KeyboardInterrupt())})
    assert checkpoints.latest() == path


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="file/checkpoints"):
        Checkpoints(tmp_path / "file" / "checkpoints", keep=1).save(1, {}, {"w": torch.ones(2)})


@pytest.mark.parametrize(
    "tensors", [{"w": torch.ones(3)}, {"w": torch.ones(2), "v": torch.ones(1)}], ids=["shape", "key"]
)
def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path, tensors: dict[str, Tensor]) -> None:
    checkpoints = Checkpoints(tmp_path, keep=1)
    path = checkpoints.save(1, {}, {"w": torch.ones(2)})
    with pytest.raises(CheckpointError, match="step-00000001 cannot be read: .*another model"):
        checkpoints.load(path, tensors)


def test_a_checkpoint_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="gone cannot be read: .*No such file"):
        Checkpoints(tmp_path, keep=1).load(tmp_path / "gone", {"w": torch.ones(2)})


@pytest.mark.suite("training")
@pytest.mark.timeout(120)
def test_two_ranks_write_shards_that_one_process_reads_and_fail_together(tmp_path: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, str(tmp_path)]
    with ExitStack() as stack:
        ranks = [
            stack.enter_context(subprocess.Popen([*command, rank], env=environment, stderr=subprocess.PIPE, text=True))
            for rank in ("0", "1")
        ]
        for rank in ranks:
            stack.callback(rank.kill)
        said = [rank.communicate(timeout=100)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], said
    checkpoints = Checkpoints(tmp_path / "shared", keep=1)
    path = checkpoints.latest()
    assert path is not None
    assert len(list(path.glob("*.distcp"))) == 2
    tensors = {"w": torch.zeros(6, 2)}
    assert checkpoints.load(path, tensors) == {"by": "two ranks"}
    assert tensors["w"].tolist() == [[2.0 * row, 2.0 * row + 1] for row in range(6)]
    errors = [(tmp_path / f"rank{rank}.txt").read_text() for rank in (0, 1)]
    assert all("step 2 cannot be written" in error and "File too large" in error for error in errors)
    assert names(tmp_path / "shared") == [path.name]


def _rank(folder: Path, rank: int) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    whole = torch.arange(12.0).reshape(6, 2)
    checkpoints = Checkpoints(folder / "shared", keep=1)
    path = checkpoints.save(1, {"by": "two ranks"}, {"w": distribute_tensor(whole, mesh, [Shard(0)])})
    again = {"w": distribute_tensor(torch.zeros(6, 2), mesh, [Shard(0)])}
    assert checkpoints.latest() == path
    checkpoints.load(path, again)
    assert torch.equal(again["w"].full_tensor(), whole)
    # Only rank 1 runs out of space, and both say so instead of waiting for each other.
    large = distribute_tensor(torch.ones(2**18), mesh, [Shard(0)])
    try:
        with largest_file(2**16 if rank == 1 else 2**30):
            checkpoints.save(2, {}, {"w": large})
    except CheckpointError as error:
        (folder / f"rank{rank}.txt").write_text(str(error))
    dist.destroy_process_group()


if __name__ == "__main__":
    _rank(Path(sys.argv[1]), int(sys.argv[2]))
