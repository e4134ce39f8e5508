"""The training runs of a hub for clients. A trainer uses `TrainingReporter` (`ludus.registry.reporting`)."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from ludus.registry.client import ANSWER_SECONDS, RegistryClient
from ludus.registry.types.training import (
    Alive,
    BatchKept,
    CurveSet,
    EndTraining,
    OpenTraining,
    PointBatch,
    PointPage,
    TrainingInfo,
    TrainingList,
    TrainingRollout,
    Visibility,
)

SEND_SECONDS: Final = 20.0
"""How long the hub may take to answer a sender."""


class TrainingClient(RegistryClient):
    """A connection to a hub, with its training runs; see `RegistryClient`."""

    async def open(self, params: OpenTraining) -> TrainingInfo:
        """Open a training run, or continue the one with the same `sender_key`.

        Raises:
            CapacityError: the account has too many runs.
            InvalidParams, PayloadTooLarge: the configuration has a secret, or is too large.
        """
        body = params.model_dump_json(by_alias=True)
        return await self._call("POST", "/training", TrainingInfo, seconds=SEND_SECONDS, data=body)

    async def append(self, run: str, batch: PointBatch) -> BatchKept:
        """Append a batch of points. Sending one again is harmless.

        Raises:
            Conflict: another batch is expected (`error.data["expected"]`), another process has continued the run, or
                it has ended.
            CapacityError: the run or the account is full, or there are too many requests (`error.retry_after`).
        """
        body = batch.model_dump_json(by_alias=True)
        return await self._call("POST", f"{_run(run)}/points", BatchKept, seconds=SEND_SECONDS, data=body)

    async def alive(self, run: str, attempt: str) -> TrainingInfo:
        """Say that a run goes on."""
        body = Alive(attempt=attempt).model_dump_json(by_alias=True)
        return await self._call("POST", f"{_run(run)}/alive", TrainingInfo, seconds=SEND_SECONDS, data=body)

    async def end(self, run: str, params: EndTraining) -> TrainingInfo:
        """End a run."""
        body = params.model_dump_json(by_alias=True)
        return await self._call("POST", f"{_run(run)}/end", TrainingInfo, seconds=SEND_SECONDS, data=body)

    async def attach(self, run: str, rollout: TrainingRollout) -> TrainingInfo:
        """Attach a sample rollout. Sending one again is harmless.

        Raises:
            CapacityError: the run has too many.
            InvalidParams, PayloadTooLarge: it is no trajectory, or too large.
        """
        body = rollout.model_dump_json(by_alias=True)
        return await self._call("POST", f"{_run(run)}/rollouts", TrainingInfo, seconds=SEND_SECONDS, data=body)

    async def training_run(self, run: str) -> TrainingInfo:
        """Return a run.

        Raises:
            NotFound: there is none, or it is private.
        """
        return await self._call("GET", _run(run), TrainingInfo)

    async def training_runs(self, page: int = 1, *, own: bool = False) -> TrainingList:
        """Return one page of the runs that the token may see, the newest first."""
        query = [("page", str(page)), ("own", str(own).lower())]
        return await self._call("GET", "/training", TrainingList, params=query)

    async def curves(self, run: str, buckets: int = 256) -> CurveSet:
        """Return the curves of a run, each as at most `buckets` buckets."""
        return await self._call("GET", f"{_run(run)}/curves", CurveSet, params=[("buckets", str(buckets))])

    async def points(self, run: str, start: int = 0) -> PointPage:
        """Return one page of points as they were sent, from batch `start` on."""
        return await self._call("GET", f"{_run(run)}/points", PointPage, params=[("from", str(start))])

    async def set_visibility(self, run: str, visibility: Visibility) -> TrainingInfo:
        """Make a run private or public."""
        return await self._call("PUT", f"{_run(run)}/visibility", TrainingInfo, json={"visibility": visibility})

    async def delete_training_run(self, run: str) -> None:
        """Delete a run with all its points and rollouts."""
        async with self._request("DELETE", f"{self.hub}/api/v1{_run(run)}", ANSWER_SECONDS):
            pass


def _run(run: str) -> str:
    return f"/training/{quote(run, safe='')}"
