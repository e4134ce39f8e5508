"""Checkpoints: one folder per step, written with torch.distributed.checkpoint under a temporary name and then renamed.

`step-00000050/`, or `warm-up-00000050/` before the first step, holds the tensors (each rank writes its shards; a
checkpoint of two ranks can be read by one) and `checkpoint.json`: the plain state, and the sizes of all files, which
show whether a copy is complete. With several ranks, the folder must be visible to all of them, and all ranks must call
every method except the constructor with the same arguments.
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from ludus.trainer.core.errors import CheckpointError

MANIFEST: Final = "checkpoint.json"
T = TypeVar("T")


class Checkpoints:
    """The checkpoints of a run. The newest `keep` checkpoints are kept."""

    def __init__(self, folder: Path, keep: int) -> None:
        self.folder = folder
        self._keep = keep

    def save(self, step: int, state: dict[str, Any], tensors: dict[str, Any], *, warm_up: bool = False) -> Path:
        """Write a checkpoint, then remove the oldest ones. Do nothing if the step already has a checkpoint.

        Args:
            step: the number of completed steps, which names the checkpoint.
            state: JSON-ready values: counters, curriculum, numbers of groups.
            tensors: a tree of dicts and lists of tensors, sharded or not, and of values that pickle.
            warm_up: whether these are steps of the warm-up, which count as older than all others.

        Raises:
            CheckpointError: it cannot be written, because the disk is full or otherwise. Earlier checkpoints are not
                changed.
        """
        final = self.folder / f"{'warm-up' if warm_up else 'step'}-{step:08d}"
        aside = self.folder / f".writing-{final.name}"

        def prepare() -> None:
            self.folder.mkdir(parents=True, exist_ok=True)
            for leftover in (*self.folder.glob(".writing-*"), *self.folder.glob(".removed-*")):
                shutil.rmtree(leftover)
            aside.mkdir()

        def finish() -> None:
            if final.exists():
                _remove(final)
            sizes = {path.name: path.stat().st_size for path in aside.iterdir()}
            with (aside / MANIFEST).open("w") as file:
                json.dump({"step": step, "state": state, "files": sizes}, file)
                file.flush()
                os.fsync(file.fileno())
            _sync_folder(aside)
            aside.rename(final)
            _sync_folder(self.folder)
            complete = [path for path in self._paths() if _whole(path)]
            for path in self._paths():
                if path not in complete[-self._keep :] and path != final:
                    _remove(path)

        if _on_first(lambda: _whole(final)):
            return final
        try:
            _on_first(prepare)
            with _one_process():
                state_dict_saver.save(tensors, storage_writer=_Writer(aside, sync_files=True))
            _on_first(finish)
        except (CheckpointException, OSError) as error:
            existing = next(parent for parent in (self.folder, *self.folder.parents) if parent.exists())
            need, free = _size(tensors) / 2**20, shutil.disk_usage(existing).free / 2**20
            _on_first(lambda: shutil.rmtree(aside, ignore_errors=True))
            raise CheckpointError(
                f"the checkpoint of step {step} cannot be written to {self.folder}: {_cause(error)}. It needs about "
                f"{need:,.1f} MiB there, and {free:,.1f} MiB are free. Make room, or keep fewer with checkpoints.keep; "
                f"the earlier ones are untouched."
            ) from None
        return final

    def latest(self) -> Path | None:
        """Return the newest complete checkpoint; None if there is none."""
        return _on_first(lambda: next((path for path in reversed(self._paths()) if _whole(path)), None))

    def state(self, path: Path) -> dict[str, Any]:
        """Return the plain state of a checkpoint.

        Raises:
            CheckpointError: it cannot be read.
        """
        with _readable(path):
            state: dict[str, Any] = _on_first(lambda: json.loads((path / MANIFEST).read_text()))["state"]
            return state

    def load(self, path: Path, tensors: dict[str, Any]) -> dict[str, Any]:
        """Load a checkpoint's tensors in place into `tensors`, a tree whose keys are among those of the saved one.

        Returns:
            The plain state.

        Raises:
            CheckpointError: the checkpoint cannot be read, or belongs to another model.
        """
        with _readable(path), _one_process():
            state_dict_loader.load(tensors, storage_reader=FileSystemReader(path))
        return self.state(path)

    def clear(self) -> None:
        """Remove all checkpoints, so that a new run is never resumed from checkpoints of an earlier run."""
        _on_first(lambda: list(map(_remove, self._paths())))

    def _paths(self) -> list[Path]:
        return [*sorted(self.folder.glob("warm-up-*")), *sorted(self.folder.glob("step-*"))]


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except (CheckpointException, OSError, ValueError) as error:
        raise CheckpointError(
            f"the checkpoint {path} cannot be read: {_cause(error)}. Was it made with another model or parallel "
            f"layout of the optimizer? Remove it, or start again with checkpoints.resume = false."
        ) from None


class _Writer(FileSystemWriter):
    """A writer that reports a full disk: torch raises "unexpected pos 704 vs 598" while it handles the OSError."""

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        try:
            return super().write_data(plan, planner)
        except RuntimeError as error:
            raise error.__context__ if isinstance(error.__context__, OSError) else error from None


def _whole(path: Path) -> bool:
    try:
        sizes = json.loads((path / MANIFEST).read_text())["files"]
        return all((path / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError):
        return False


def _remove(path: Path) -> None:
    aside = path.with_name(f".removed-{path.name}")
    shutil.rmtree(aside, ignore_errors=True)
    path.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _on_first(action: Callable[[], T]) -> T:
    """Run an action on rank 0. Return its result, or raise its error, on every rank."""
    if not dist.is_initialized():
        return action()
    outcome: list[Any] = [None, None]
    if dist.get_rank() == 0:
        try:
            outcome[0] = action()
        except Exception as error:
            outcome[1] = error
    dist.broadcast_object_list(outcome, src=0)
    if outcome[1] is not None:
        raise outcome[1]
    result: T = outcome[0]
    return result


@contextmanager
def _one_process() -> Iterator[None]:
    """Suppress torch's warning that it assumes a single process when there is no process group."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable or uninitialized")
        yield


def _cause(error: BaseException) -> str:
    """Return the first rank's failure in one line. Raise it again if it is not an error, such as Ctrl-C."""
    if isinstance(error, CheckpointException):
        for failure, _ in error.failures.values():
            if not isinstance(failure, Exception):
                raise failure
            return _cause(failure)
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _size(tree: object) -> int:
    """Return the size in bytes of all tensors of a tree, over all ranks."""
    if isinstance(tree, torch.Tensor):
        return tree.numel() * tree.element_size()
    if isinstance(tree, dict):
        return sum(map(_size, tree.values()))
    return sum(map(_size, tree)) if isinstance(tree, (list, tuple)) else 0
