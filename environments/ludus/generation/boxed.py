"""The steps that run a generated package, each in a fresh sandbox: build, tests, `ludus validate`, and play.

The tests are code of the model, too. So what they may have changed in their sandbox must not reach `validate`: that one
runs in a sandbox of its own, which has nothing but the wheel, built in a third one.
"""

from __future__ import annotations

import asyncio
import io
import json
import math
import sys
import zipfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

import ludus
from ludus.client import Harness, Policy, connect, rollout_all
from ludus.client.policies.base import policy_name
from ludus.client.summary import SUCCESS_TOLERANCE
from ludus.protocol.errors import InvalidParams, LudusError
from ludus.sandbox import Limits, RunResult, Sandbox, SandboxSettings

PORT: Final = 8000
"""The port of the environment's server in its sandbox."""
_SHOWN: Final = 6_000
_MOST_FILES: Final = 100
_LARGEST_WHEEL: Final = 4 * 2**20
_LIMITS: Final = Limits(
    seconds=600, cpu_seconds=600, memory=2 * 2**30, processes=128, disk=256 * 2**20, output=2 * 2**20
)
_TURNS: Final = 50
_SITE: Final = "site"


class PackageCalibration(BaseModel):
    """How a model fared in a new environment."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    policy: str
    tasks: int
    """How many training tasks it played."""
    attempts: int
    """The scored episodes."""
    passes: int
    """The episodes that earned the best reward."""
    unscored: int
    mean: float | None
    """The mean reward; None if no episode was scored."""
    note: str | None = None
    """What ended the calibration early; None if nothing did."""

    @property
    def rate(self) -> float | None:
        """The share of the scored episodes that earned the best reward; None if there were none."""
        return self.passes / self.attempts if self.attempts else None

    def line(self) -> str:
        """Return the result as text."""
        if self.rate is None:
            return f"not calibrated: no episode of {self.policy} was scored{f' ({self.note})' if self.note else ''}"
        text = f"{self.policy} solves {self.passes} of {self.attempts} episodes ({self.rate:.0%}) of {self.tasks} tasks"
        return f"{text}, mean reward {self.mean:.3f}{f'; {self.note}' if self.note else ''}"


def settings() -> SandboxSettings:
    """Return the sandbox: this installation read-only, loopback for servers, and no network."""
    places = [str(Path(path).parent) for path in ludus.__path__]
    places += [path for path in sys.path if PurePosixPath(path).name in ("site-packages", "dist-packages")]
    shown = [(place, f"/ludus/{number}") for number, place in enumerate(dict.fromkeys(places))]
    variables = (("PYTHONPATH", ":".join(inside for _, inside in shown)), ("PYTHONDONTWRITEBYTECODE", "1"))
    return SandboxSettings(limits=_LIMITS, readonly=tuple(shown), loopback=True, warm=0, env=variables)


async def judge_package(provider: Any, files: Mapping[str, bytes], target: str) -> tuple[tuple[str, str] | None, bytes]:
    """Build a package, run its tests, and validate what was built.

    Args:
        provider: an open provider of sandboxes.
        files: the files of the package.
        target: its environment, as `module:Class`.

    Returns:
        The step that failed and why, or None if it passes; and its wheel.

    Raises:
        InvalidParams: the build backend is not installed here.
        SandboxFailed: a sandbox failed.
    """
    if find_spec("hatchling") is None:
        raise InvalidParams("the package `hatchling` is missing, which builds the wheel: pip install hatchling")
    async with await provider.create(settings()) as box:
        await _write(box, files)
        built = await box.run(["python3", "-m", "hatchling", "build", "-t", "wheel", "-d", "dist"])
        wheel = await _built(box) if built.ok else None
        if wheel is None:
            return ("build", output(built)), b""
    async with await provider.create(settings()) as box:
        await _write(box, files)
        tests = await box.run(["python3", "-m", "pytest", "-q", "-p", "no:cacheprovider"])
        if not tests.ok:
            return ("pytest", output(tests)), wheel
    async with installed(provider, wheel) as (box, variables):
        return await _validated(box, variables, target), wheel


async def _write(box: Sandbox, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        await box.write(name, data)


async def _built(box: Sandbox) -> bytes | None:
    listed = await box.run(["sh", "-c", "ls dist"])
    names = [name for name in listed.text.split() if name.endswith(".whl")]
    return await box.read(f"dist/{names[0]}", limit=_LARGEST_WHEEL) if len(names) == 1 else None


@asynccontextmanager
async def installed(provider: Any, wheel: bytes) -> AsyncIterator[tuple[Sandbox, dict[str, str]]]:
    """Yield a fresh sandbox that has the files of a wheel, and nothing else of the package; and the variables with
    which Python finds them."""
    given = settings()
    async with await provider.create(given) as box:
        with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
            entries = [one for one in archive.infolist() if not one.is_dir()]
            if len(entries) > _MOST_FILES or sum(entry.file_size for entry in entries) > _LARGEST_WHEEL:
                raise InvalidParams(f"the wheel has more than {_MOST_FILES} files, or more than {_LARGEST_WHEEL} bytes")
            for one in entries:
                await box.write(f"{_SITE}/{one.filename}", archive.read(one))
        where = (await box.run(["pwd"])).text.strip()
        yield box, {"PYTHONPATH": f"{where}/{_SITE}:{dict(given.env)['PYTHONPATH']}"}


async def _validated(box: Sandbox, variables: dict[str, str], target: str) -> tuple[str, str] | None:
    command = ["python3", "-m", "ludus.cli", "validate", target, "--strict", "--json"]
    checked = await box.run(command, env=variables)
    try:
        reports: list[dict[str, Any]] = json.loads(checked.text)
        checks = [(report["environment"], check) for report in reports for check in report["checks"]]
        bad = [(name, check) for name, check in checks if check["status"] not in ("passed", "skipped")]
        passed = bool(reports) and all(report["passed"] for report in reports)
    except (ValueError, KeyError, TypeError):
        return "validate", output(checked)
    if passed and not bad and checked.ok:
        return None
    return "validate", _tail("\n".join(json.dumps(_brief(name, check)) for name, check in bad) or output(checked))


async def calibrate_package(
    provider: Any, wheel: bytes, target: str, policy: Policy, *, tasks: int, samples: int, seed: int
) -> PackageCalibration:
    """Let a model play training tasks of a built package, which is served in a fresh sandbox.

    The model's requests are made by this process: the sandbox has no network.

    Args:
        provider: an open provider of sandboxes.
        wheel: the package.
        target: its environment, as `module:Class`.
        policy: the model.
        tasks: how many tasks.
        samples: the episodes of each.
        seed: the seed of the episodes.
    """
    name, played, note = policy_name(policy), 0, None
    values: list[float] = []
    unscored, top = 0, 1.0
    async with installed(provider, wheel) as (box, variables):
        await box.spawn(["python3", "-m", "ludus.cli", "serve", target, "--port", str(PORT)], env=variables)
        try:
            async with _forwarded(box) as url, connect(url, wire="channel", reconnect_seconds=30.0) as client:
                (info,) = await client.environments()
                top = info.reward_range[1] if info.reward_range is not None else 1.0
                split = next(one for one in info.splits if one.type == "train")
                played = tasks if split.count is None else min(tasks, split.count)
                plays = await rollout_all(
                    client.environment(info.name), policy, split=split.name, tasks=list(range(played)),
                    samples=samples, seed=seed if info.seedable else None, concurrency=4, retries=1,
                    harness=Harness(max_turns=_TURNS, episode_seconds=120.0),
                )  # fmt: skip
                values = [play.value for play in plays if play.value is not None]
                unscored = len(plays) - len(values)
                note = next((play.failure.message for play in plays if play.value is None and play.failure), None)
        except (LudusError, OSError, StopIteration, ValueError) as error:
            note = f"the environment could not be played: {error}"[:300]
    passes = sum(value >= top - SUCCESS_TOLERANCE for value in values)
    mean = math.fsum(values) / len(values) if values else None
    return PackageCalibration(
        policy=name, tasks=played, attempts=len(values), passes=passes, unscored=unscored, mean=mean, note=note
    )


@asynccontextmanager
async def _forwarded(box: Sandbox) -> AsyncIterator[str]:
    """Yield a URL on this machine that leads to the server in a sandbox, once it listens."""
    async with await box.expose(PORT, seconds=60.0):
        pass  # it listens
    tasks = set[asyncio.Task[Any]]()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        inner: asyncio.StreamWriter | None = None
        try:
            there, inner = await asyncio.open_connection(sock=await box.connect(PORT))
            await asyncio.gather(_pump(reader, inner), _pump(there, writer))
        except (OSError, LudusError):
            return
        finally:
            tasks.discard(task)
            for one in filter(None, (writer, inner)):
                one.close()

    server = await asyncio.start_server(forward, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


def _brief(name: str, check: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "environment": name,
        **{key: check[key] for key in ("kind", "status", "detail", "findings") if key in check},
    }


def output(result: RunResult) -> str:
    """Return the end of what a command wrote, with the limit that ended it."""
    limit = f"(ended by its limit on {result.limit})\n" if result.limit else ""
    return limit + _tail(result.text + result.stderr.decode("utf-8", "replace"))


def _tail(text: str) -> str:
    return text if len(text) <= _SHOWN else "…" + text[-_SHOWN:]
