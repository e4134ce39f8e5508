"""Reports the metrics of a training run to a hub while it runs, from any trainer.

How this works: `log` puts a point into a bounded queue in memory and returns; it never waits for the hub. A thread of
its own opens the run, sends the points in numbered batches, and repeats what was not answered with growing pauses. The
hub keeps a repeated batch once. When the queue is full, the oldest points leave it, and their number is reported. What
the hub refuses for good ends the reporting, never the training. `close` gives the thread some seconds to send the rest.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import secrets
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, Self

from ludus.common.backoff import Backoff
from ludus.common.distribution import installed_version
from ludus.protocol.errors import (
    CapacityError,
    Conflict,
    InvalidParams,
    LudusError,
    PayloadTooLarge,
    RequestError,
)
from ludus.protocol.integers import LARGEST_INTEGER
from ludus.registry.client import normal_address
from ludus.registry.credentials import saved_token
from ludus.registry.training import TrainingClient
from ludus.registry.types.secrets import without_secrets
from ludus.registry.types.training import (
    BATCH_POINTS,
    BATCH_VALUES,
    CONFIG_BYTES,
    LATEST_TIME,
    METRIC_NAME_LETTERS,
    METRICS,
    ROLLOUT_BYTES,
    EndTraining,
    Number,
    OpenTraining,
    PointBatch,
    TrainingEnvironment,
    TrainingPoint,
    TrainingRollout,
    to_number,
)

TOKEN_VARIABLE: Final = "LUDUS_HUB_TOKEN"
"""The environment variable with the token of a hub."""

QUEUED_POINTS: Final = 10_000
"""The most points that wait to be sent."""

QUEUED_ROLLOUTS: Final = 20
"""The most sample rollouts that wait to be sent."""

INTERVAL_SECONDS: Final = 2.0
"""How often waiting points are sent."""

ALIVE_SECONDS: Final = 30.0
"""How often the hub hears from a run that has no points."""

FLUSH_SECONDS: Final = 10.0
"""How long `close` waits for the last points to be sent."""

LONGEST_PAUSE: Final = 60.0
"""The longest pause between two attempts, in seconds."""

_BATCH_BYTES: Final = 400_000
"""The most bytes of a batch, about; the hub takes 1 MiB."""

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


class Report(NamedTuple):
    """The outcome of reporting a run."""

    url: str
    """The page of the run; empty if the hub was never reached."""
    sent: int
    """How many points the hub has kept."""
    dropped: int
    """How many points the hub does not have."""
    problems: tuple[str, ...]
    """What went wrong, in order; at most 20."""


class TrainingReporter:
    """Reports a training run to a hub. A context manager: an exception in its block ends the run as failed.

    Args:
        hub: the hub's address.
        name: what the run is called.
        token: a token with the scope `training`; by default that of `LUDUS_HUB_TOKEN`, or of `ludus account login`.
        config: the configuration; texts that look like secrets are replaced before anything is sent.
        environments: the environments that are trained on.
        steps: how many steps are planned.
        trainer: the program that trains, with its version.
        public: whether all may see the run. By default its account alone sees it.
        sender_key: the name under which the run can be continued by a later process; by default a new one.
        resumed_from: the step of the checkpoint from which this process continues the run.

    Raises:
        InvalidParams: the address is not one of HTTP.
        KeyFileUnusable: the file of kept tokens cannot be read.
    """

    def __init__(
        self,
        hub: str,
        *,
        name: str,
        token: str | None = None,
        config: Mapping[str, Any] | None = None,
        environments: Sequence[TrainingEnvironment] = (),
        steps: int | None = None,
        trainer: str | None = None,
        public: bool = False,
        sender_key: str | None = None,
        resumed_from: int = 0,
    ) -> None:
        self.hub = normal_address(hub)
        self._token = token or os.environ.get(TOKEN_VARIABLE) or saved_token(self.hub)
        self._queue = _Queue()
        self._params = OpenTraining(
            sender_key=sender_key or secrets.token_hex(16), attempt=secrets.token_hex(16), name=_plain(name) or "run",
            trainer=_plain(trainer or f"ludus {installed_version()}"), config=_config(config or {}, self._queue),
            environments=tuple(environments)[:50], steps=steps, resumed_from=resumed_from,
            visibility="public" if public else "private",
        )  # fmt: skip
        self._sender = _Sender(self.hub, self._token, self._params, self._queue)
        self._closed: Report | None = None
        self._sender.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.close()
        else:
            self.close("failed", f"{type(error).__name__}: {error}")

    @property
    def url(self) -> str:
        """The page of the run; empty until the hub has answered."""
        return self._queue.url

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Report metrics of a step, without waiting for anything.

        Args:
            step: the step, from 0.
            metrics: numbers by name; not-a-number and infinity are reported as such. What is no number is left out,
                with a problem in the report.
        """
        now = time.time()
        values: dict[str, float] = {}
        for name, value in metrics.items():
            try:
                values[str(name)] = float(value)
            except Exception:  # whatever the type of the value raises, such as a tensor of several numbers
                self._queue.note(f"the metric {str(name)[:80]!r} is no number and is not reported")
        if values:
            self._queue.put(int(step), now, values)

    def rollout(self, step: int, trajectory: Mapping[str, Any]) -> None:
        """Attach a sample rollout, a line of `ludus run --out`, without waiting. At most 20 wait; others are left out.

        Args:
            step: the step that was trained on it.
            trajectory: the trajectory as JSON.
        """
        self._queue.put_rollout(int(step), dict(trajectory))

    def problems(self) -> tuple[str, ...]:
        """Return what has gone wrong since the last call."""
        return self._queue.take_problems()

    def close(
        self, state: Literal["finished", "failed"] = "finished", reason: str = "", *, seconds: float = FLUSH_SECONDS
    ) -> Report:
        """Send what is left, end the run, and return the outcome. Closing again returns the same.

        Args:
            state: how the run ended.
            reason: why it failed.
            seconds: how long to wait for the hub, at most. To break off what is under way may take two seconds more.
        """
        if self._closed is None:
            self._sender.finish(state, _plain(reason, 500), seconds)
            self._closed = self._queue.report()
        return self._closed


class _Queue:
    """What waits to be sent, between the trainer's threads and the sender."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._points: deque[tuple[int, float, dict[str, float]]] = deque()
        self._rollouts: deque[tuple[int, dict[str, Any]]] = deque()
        self._problems: deque[str] = deque(maxlen=20)
        self._noted: dict[str, None] = {}
        self._is_open = True
        self.sent = 0
        self.dropped = 0
        self.url = ""

    def put(self, step: int, moment: float, values: dict[str, float]) -> None:
        with self._lock:
            if not self._is_open:
                self.dropped += 1
                return
            if len(self._points) >= QUEUED_POINTS:
                self._points.popleft()
                self.dropped += 1
            self._points.append((step, moment, values))

    def put_rollout(self, step: int, trajectory: dict[str, Any]) -> None:
        with self._lock:
            if self._is_open and len(self._rollouts) < QUEUED_ROLLOUTS:
                self._rollouts.append((step, trajectory))

    def take(self) -> list[tuple[int, float, dict[str, float]]]:
        """Return the points of one batch, and take them out."""
        found: list[tuple[int, float, dict[str, float]]] = []
        values = size = 0
        with self._lock:
            while self._points and len(found) < BATCH_POINTS:
                names = self._points[0][2]
                values += len(names)
                size += sum(len(name) + 28 for name in names)
                if found and (values > BATCH_VALUES or size > _BATCH_BYTES):
                    break
                found.append(self._points.popleft())
        return found

    def take_rollout(self) -> tuple[int, dict[str, Any]] | None:
        with self._lock:
            return self._rollouts.popleft() if self._rollouts else None

    def drop(self, count: int) -> None:
        with self._lock:
            self.dropped += count

    def keep(self, count: int) -> None:
        with self._lock:
            self.sent += count

    def shut(self) -> None:
        """Take no more points, and count those that wait as dropped."""
        with self._lock:
            self._is_open = False
            self.dropped += len(self._points)
            self._points.clear()
            self._rollouts.clear()

    def note(self, problem: str) -> None:
        """Note a problem; one that was noted before is not repeated."""
        with self._lock:
            if problem not in self._noted and len(self._noted) < 200:
                self._noted[problem] = None
                self._problems.append(problem)

    def take_problems(self) -> tuple[str, ...]:
        with self._lock:
            found = tuple(self._problems)
            self._problems.clear()
            return found

    def report(self) -> Report:
        with self._lock:
            return Report(self.url, self.sent, self.dropped, tuple(self._noted)[:20])


class _Refused(Exception):
    """The hub does not take this run any more."""


class _Sender:
    """The thread that sends."""

    def __init__(self, hub: str, token: str | None, params: OpenTraining, queue: _Queue) -> None:
        self._thread = threading.Thread(target=self._run, name="ludus-training-reporter", daemon=True)
        self._hub, self._token, self._params, self._queue = hub, token, params, queue
        self._attempt = params.attempt
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._started = threading.Event()
        self._wake = asyncio.Event()
        self._end: EndTraining | None = None
        self._number = 0
        self._names: dict[str, str | None] = {}
        """What each metric is called at the hub; None for those that are left out."""

    def start(self) -> None:
        """Start to send."""
        self._thread.start()

    def _run(self) -> None:
        try:
            with asyncio.Runner() as runner:
                runner.run(self._main())
        except Exception as error:  # such as a process that may open no more files
            self._queue.note(f"reporting to {self._hub} failed: {type(error).__name__}: {error}")
        finally:
            self._queue.shut()
            self._started.set()

    def finish(self, state: Literal["finished", "failed"], reason: str, seconds: float) -> None:
        """Send the rest for some seconds at most, and end."""
        self._started.wait()
        self._end = EndTraining(attempt=self._attempt, state=state, reason=reason)
        self._call(self._wake.set)
        self._thread.join(max(0.0, seconds))
        if self._thread.is_alive() and self._task is not None:
            self._call(self._task.cancel)
            self._thread.join(2.0)
        self._queue.shut()

    def _call(self, function: Any) -> None:
        if self._loop is None:  # the thread could not start one
            return
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:  # the thread has ended
            return

    async def _main(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        self._started.set()
        try:
            async with TrainingClient(self._hub, self._token) as client:
                await self._report(client)
        except _Refused as refused:
            self._queue.note(str(refused))
        except asyncio.CancelledError:
            self._queue.note(f"the hub {self._hub} did not take the last points in time")
        except Exception as error:  # a fault here must not reach the trainer
            self._queue.note(f"reporting to {self._hub} failed: {type(error).__name__}: {error}")

    async def _report(self, client: TrainingClient) -> None:
        info = await self._patiently(lambda: client.open(self._params))
        self._queue.url, self._number = info.url, info.next_batch
        heard = time.monotonic()
        while True:
            ending = self._end is not None
            sent = False
            while points := self._queue.take():
                await self._send(client, info.key, points)
                sent = True
            while (rollout := self._queue.take_rollout()) is not None:
                await self._attach(client, info.key, *rollout)
                sent = True
            if sent:
                heard = time.monotonic()
            if ending:
                break
            if time.monotonic() - heard >= ALIVE_SECONDS:
                await self._patiently(lambda: client.alive(info.key, self._attempt))
                heard = time.monotonic()
            await self._pause(INTERVAL_SECONDS)
        assert self._end is not None
        end = self._end.model_copy(update={"dropped": self._queue.dropped})
        await self._patiently(lambda: client.end(info.key, end))

    async def _pause(self, seconds: float) -> None:
        """Wait, or until the run ends."""
        try:
            async with asyncio.timeout(seconds):  # `asyncio.wait_for` of Python 3.11 may lose a cancellation
                await self._wake.wait()
        except TimeoutError:
            return
        if self._end is None:
            self._wake.clear()

    async def _patiently(self, request: Any) -> Any:
        """Return the answer to a request, and repeat it while the hub is away or busy.

        Raises:
            _Refused: the hub refuses it for good.
            InvalidParams, PayloadTooLarge, Conflict, CapacityError: it refuses this one request.
        """
        backoff = Backoff(0.5, LONGEST_PAUSE)
        while True:
            try:
                return await request()
            except (InvalidParams, PayloadTooLarge, Conflict):
                raise
            except CapacityError as error:
                if error.retry_after is None:
                    raise
                pause = min(max(error.retry_after, backoff.next()), LONGEST_PAUSE)
            except RequestError as error:
                raise _Refused(f"{self._hub} refuses the run, and nothing more is reported: {error}") from None
            except LudusError as error:
                self._queue.note(f"points wait: {error}")
                pause = backoff.next()
            if self._end is None:
                await self._pause(pause)
            else:
                await asyncio.sleep(min(pause, 1.0))

    async def _send(self, client: TrainingClient, run: str, points: list[tuple[int, float, dict[str, float]]]) -> None:
        rows = [row for row in map(self._point, points) if row is not None]
        if not rows:
            self._queue.drop(len(points))
            return
        sent = False
        try:
            for _ in range(3):  # the second time with the number that the hub expects
                batch = PointBatch(attempt=self._attempt, number=self._number, points=tuple(rows))
                try:
                    await self._patiently(lambda batch=batch: client.append(run, batch))
                except Conflict as error:
                    expected = error.data.get("expected")
                    if not isinstance(expected, int):
                        raise _Refused(f"nothing more is reported: {error}") from None
                    self._number = expected
                    continue
                self._number += 1
                sent = True
                break
        except (InvalidParams, PayloadTooLarge) as error:
            self._queue.note(f"the hub refuses {len(rows)} points: {error}")
        except CapacityError as error:
            if error.data.get("limit") != "metrics":
                raise _Refused(f"nothing more is reported: {error}") from None
            self._queue.note(f"the hub refuses {len(rows)} points: {error}")
        finally:
            self._queue.keep(len(rows) if sent else 0)
            self._queue.drop(len(points) - (len(rows) if sent else 0))

    async def _attach(self, client: TrainingClient, run: str, step: int, trajectory: dict[str, Any]) -> None:
        try:
            if len(json.dumps(trajectory)) > ROLLOUT_BYTES:
                self._queue.note(f"a sample rollout of step {step} is larger than {ROLLOUT_BYTES >> 10} KiB; left out")
                return
            sent = TrainingRollout(attempt=self._attempt, step=_step(step), trajectory=trajectory)
            await self._patiently(lambda: client.attach(run, sent))
        except (InvalidParams, PayloadTooLarge, CapacityError, Conflict, TypeError, ValueError) as error:
            self._queue.note(f"a sample rollout of step {step} is left out: {error}")

    def _point(self, point: tuple[int, float, dict[str, float]]) -> TrainingPoint | None:
        step, moment, values = point
        named: dict[str, Number] = {
            shown: to_number(value) for name, value in values.items() if (shown := self._name(name)) is not None
        }
        if not named:
            return None
        return TrainingPoint(step=_step(step), time=min(max(0.0, moment), LATEST_TIME), metrics=named)

    def _name(self, name: str) -> str | None:
        if name not in self._names:
            if len(self._names) >= METRICS:
                self._queue.note(f"a run has {METRICS} metrics at most; {name[:80]!r} and later ones are left out")
                return None
            self._names[name] = _plain(name, METRIC_NAME_LETTERS) or "metric"
        return self._names[name]


def _step(step: int) -> int:
    return min(max(0, step), LARGEST_INTEGER)


def _plain(text: str, most: int = 120) -> str:
    """Return a text on one line, of at most `most` characters."""
    return _CONTROL.sub(" ", text)[:most].strip()


def _config(config: Mapping[str, Any], queue: _Queue) -> dict[str, Any]:
    """Return a configuration as it is sent: JSON without secrets, or a note if it is too large."""
    plain = json.loads(json.dumps(_finite(dict(config)), default=str))
    found: dict[str, Any] = without_secrets(plain)
    if len(json.dumps(found)) > CONFIG_BYTES:
        queue.note(f"the configuration is larger than {CONFIG_BYTES >> 10} KiB and is not sent")
        return {"note": "the configuration was too large to be sent"}
    return found


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(one) for key, one in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_finite(one) for one in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
