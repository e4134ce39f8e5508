"""Running a task's tests, and reading the reward that they leave, as Harbor does."""

from __future__ import annotations

import io
import json
import math
import posixpath
import tarfile
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from ludus.formats.harbor_tasks.folder import HarborFolder, files_of
from ludus.protocol.rewards import Component, Reward
from ludus.sandbox import Sandbox
from ludus.sandbox.core.errors import SandboxFileError
from ludus.sandbox.core.model import Snapshot

LOGS: Final = "logs/verifier"
_REWARD_BYTES: Final = 2**20
_CLEAN: Final = """
chmod -R u+rwX logs tests 2>/dev/null
rm -rf tests
for d in logs logs/verifier; do if [ -L $d ] || [ ! -d $d ]; then rm -rf $d; mkdir -p $d; fi; done
rm -rf logs/verifier/reward.txt logs/verifier/reward.json
"""
"""Removes what the agent may have prepared for the verifier, in the sandbox's own work directory."""
_END_SECONDS: Final = 3.0
"""How long tests that are stopped may take to end, and their reward to be read."""
_RUN: Final = "(/tests/test.sh) > /logs/verifier/test-stdout.txt 2>&1"


class NoReward(Exception):
    """The tests left no reward that can be read; the message says why."""


class AgentMisuse(Exception):
    """The agent left the sandbox in a state in which it cannot be verified, such as a full disk."""


async def prepare(box: Sandbox, folder: HarborFolder) -> dict[str, str]:
    """Fill a new sandbox with the task's files, and return the environment variables of its image."""
    if folder.image is not None:
        await box.restore(Snapshot(folder.seed))
        return {}
    copied = await box.run(
        ["sh", "-c", "cp -a /.ludus-seed/. . 2>/dev/null; mkdir -p logs/agent logs/verifier logs/artifacts"]
    )
    if not copied.ok:
        raise RuntimeError(f"the image's files could not be copied: {copied.ending} {copied.stderr[:300]!r}")
    text = (await box.read(".env")).decode("utf-8", "replace")
    variables: dict[str, str] = {}
    for line in text.split("\n"):
        name, separator, value = line.partition("=")
        if separator:
            variables[name] = value
    variables["PWD"] = (await box.read(".workdir")).decode("utf-8", "replace").strip()
    return {name: value for name, value in variables.items() if name not in ("HOME", "HOSTNAME", "SHLVL", "_")}


async def collect(box: Sandbox, folder: HarborFolder, cwd: str) -> None:
    """Run the commands that the task asks for before its artifacts are collected. Their failure changes nothing."""
    for hook in folder.config.verifier.collect:
        limits = box.limits.but(seconds=min(hook.timeout_sec, box.limits.seconds))
        await box.run(["bash", "-c", hook.command], cwd=cwd, limits=limits)


async def copy_artifacts(source: Sandbox, target: Sandbox, folder: HarborFolder, forced: bool) -> None:
    """Copy the task's artifacts from the agent's sandbox to the verifier's. Links are left out.

    Args:
        source, target: the sandboxes.
        folder: the task.
        forced: whether the task asks for a shared verifier, so that it names no artifacts: then everything in its
            directories is copied, except logs and tests.

    Raises:
        AgentMisuse: the files cannot be copied.
    """
    paths = set(folder.config.artifact_paths)
    if forced:
        paths |= set(folder.directories) - {"/logs", "/tests", "/solution"}
    prefixes = tuple(inside for path in paths if (inside := folder.inside(path)) is not None)
    try:
        with tarfile.open(fileobj=io.BytesIO((await source.snapshot()).data)) as tar:
            for member in tar:
                name = posixpath.normpath(member.name)
                if not member.isreg() or not any(
                    name == prefix or name.startswith(prefix + "/") for prefix in prefixes
                ):
                    continue
                content = tar.extractfile(member)
                assert content is not None
                await target.write(name, content.read(), executable=bool(member.mode & 0o100))
    except SandboxFileError as error:
        raise AgentMisuse(f"its files cannot be copied to the verifier: {error.message}") from None


async def verify(
    box: Sandbox, folder: HarborFolder, cwd: str, env: Mapping[str, str], left: float | None = None
) -> dict[str, float | int]:
    """Run the task's tests in a sandbox, and return the rewards that they leave.

    Args:
        box: the sandbox.
        folder: the task.
        cwd: the directory in which the tests start.
        env: the environment variables of the image.
        left: the seconds after which the server would end the episode unscored; None for no limit. Tests end earlier,
            because a policy may be what makes them hang.

    Raises:
        NoReward: they took too long, or left no reward that can be read.
        AgentMisuse: the tests cannot be written to the sandbox.
    """
    await box.run(["sh", "-c", _CLEAN])
    try:
        for name, content, executable in files_of(folder.path / "tests"):
            await box.write(f"tests/{name}", content, executable=executable or name == "test.sh")
    except SandboxFileError as error:
        raise AgentMisuse(f"it left no place for the tests: {error.message}") from None
    seconds = min(folder.config.verifier.timeout_sec, box.limits.seconds)
    if left is not None:
        seconds = min(seconds, max(left - _END_SECONDS, _END_SECONDS / 4))
    limits = box.limits.but(seconds=seconds)
    with suppress(SandboxFileError):  # the agent may have removed the directory
        await box.list(cwd)
        result = await box.run(["bash", "-c", _RUN], env={**env, **folder.verifier_env}, cwd=cwd, limits=limits)
        if result.limit == "seconds":
            raise NoReward(f"the tests did not end within {seconds:g} s")
        return await read_rewards(box)
    raise AgentMisuse("it removed the directory in which the tests start")


async def read_rewards(box: Sandbox) -> dict[str, float | int]:
    """Return the rewards in `reward.json`, or else in `reward.txt`, with the name `reward` for the latter.

    Raises:
        NoReward: there is neither, or it cannot be read.
    """
    present = {entry.name for entry in await box.list(LOGS)}
    for name in ("reward.json", "reward.txt"):
        if name in present:
            try:
                content = await box.read(f"{LOGS}/{name}", limit=_REWARD_BYTES)
            except SandboxFileError as error:
                raise NoReward(f"{name} cannot be read: {error.message}") from None
            return parse_json(content) if name == "reward.json" else parse_text(content)
    raise NoReward("the tests wrote neither /logs/verifier/reward.txt nor /logs/verifier/reward.json")


def parse_text(content: bytes) -> dict[str, float | int]:
    """Return the reward in the content of `reward.txt`.

    Raises:
        NoReward: it is not a finite number.
    """
    try:
        value = float(content.decode("utf-8"))
    except ValueError:
        raise NoReward(f"reward.txt holds {content[:80]!r}, which is not a number") from None
    if not math.isfinite(value):
        raise NoReward(f"reward.txt holds {value}, which is not finite")
    return {"reward": value}


def parse_json(content: bytes) -> dict[str, float | int]:
    """Return the rewards in the content of `reward.json`.

    Raises:
        NoReward: it is not an object whose values are finite numbers.
    """
    try:
        rewards = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError):
        raise NoReward(f"reward.json holds {content[:80]!r}, which is not JSON") from None
    if not isinstance(rewards, dict):
        raise NoReward("reward.json holds no object of numbers")
    for name, value in rewards.items():
        try:
            finite = isinstance(value, int | float) and math.isfinite(value)
        except OverflowError:
            finite = False
        if not finite:
            raise NoReward(f"reward.json: {name} is {json.dumps(value)[:80]}, which is not a finite number")
    return {name: float(value) if isinstance(value, float) else int(value) for name, value in rewards.items()}


def reward_of(rewards: Mapping[str, float | int], key: str | None) -> Reward:
    """Return the reward of an episode, with the other keys as components.

    Args:
        rewards: what the tests left.
        key: the option `reward`.
    """
    if key == "mean" and "mean" not in rewards:
        weight = 1 / len(rewards) if rewards else 0.0
        parts = {name: Component(value=value, weight=weight) for name, value in rewards.items()}
        return Reward.of(math.fsum(rewards.values()) * weight, parts)
    chosen = key
    if chosen is None:
        if len(rewards) > 1 and "reward" not in rewards:
            names = ", ".join(rewards)
            return Reward.unscored(
                f"reward.json has the keys {names}; choose one with the option reward, or reward=mean"
            )
        chosen = "reward" if "reward" in rewards else next(iter(rewards), "reward")
    parts = {name: Component(value=value, weight=float(name == chosen)) for name, value in rewards.items()}
    return Reward.of(rewards.get(chosen, 0), parts)
