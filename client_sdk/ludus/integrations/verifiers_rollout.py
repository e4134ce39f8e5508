"""One rollout of verifiers: the task, which starts the episode and scores it, and the harness, which plays it.

How this works:

* verifiers shares a task between its rollouts, so the episode of a rollout is in the state of its trace.
* `setup` starts the episode, `launch` plays it, `finalize` ends it and notes the outcome, `cleanup` closes it anyway.
  `LudusEnv` starts and closes the episode of an agent with its own MCP client.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any, Final

import aiohttp
from pydantic import PrivateAttr

from ludus.client import Driver, LudusError, TaskAddress
from ludus.client.driver import failure_of
from ludus.common.backoff import RETRIED_STATUSES, Backoff
from ludus.integrations.peers import require
from ludus.protocol.errors import InfrastructureFailed
from ludus.protocol.trajectory import Stop

require("verifiers", "0.4.0")

import verifiers.v1 as vf  # noqa: E402  # pyright: ignore[reportMissingImports]

_NOTED: Final = ("value", "reason", "components", "end_reason", "stopped")
_STOPS: Final[Mapping[str, Stop]] = {"max_turns": "turn_limit", "agent_timeout": "time_limit"}
"""Our word for verifiers' stop conditions; its other limits count tokens."""
_CONTEXT_FULL: Final = re.compile(r"context[ _](length|window|size)|prompt is too long", re.IGNORECASE)


class LudusData(vf.TaskData):  # type: ignore[misc]
    """A row: the prompt, and the address of the task."""

    ludus: dict[str, Any]
    """A `TaskAddress` as JSON."""


class LudusState(vf.State):  # type: ignore[misc]
    """The episode of one rollout, in the process that runs it."""

    _driver: Driver = PrivateAttr()
    _open: AsyncExitStack = PrivateAttr(default_factory=AsyncExitStack)
    _stopped: Stop | None = PrivateAttr(None)


class LudusTask(vf.Task[LudusData, LudusState]):  # type: ignore[misc]
    """A task of a server."""

    driver: Driver | None = None
    """The episode that an agent with its own MCP client plays; None for `LudusHarness`, which gets its own."""

    @property
    def key(self) -> str:
        """The task's identity, which does not depend on the server's address."""
        return "/".join(str(self.data.ludus[name]) for name in ("environment", "split", "task", "seed"))

    async def setup(self, trace: vf.Trace) -> None:
        """Start the episode."""
        if self.driver is None and not isinstance(trace.agent.config.harness, LudusHarnessConfig):
            raise TypeError("this task needs LudusHarness, or LudusEnv with a harness that has MCP")
        address = TaskAddress.from_json(self.data.ludus)
        try:
            driver = self.driver or await trace.state._open.enter_async_context(address.drive())
        except LudusError as error:
            raise failure_of(error).as_error() from error
        trace.state._driver = driver
        trace.info["ludus"] = {"episode": driver.episode.id, "seed": driver.episode.seed}

    @vf.stop  # type: ignore[untyped-decorator]
    async def episode_ended(self, trace: vf.Trace) -> bool:
        """Return whether an agent with its own MCP client has ended the episode; it may not know, and play on."""
        return self.driver is not None and (await self.driver.episode.info()).end_reason is not None

    async def finalize(self, trace: vf.Trace) -> None:
        """End the episode and note its outcome; raise the failure if something broke."""
        driver, condition = trace.state._driver, trace.stop_condition or ""
        stopped = trace.state._stopped or _STOPS.get(condition, "context_limit" if "_tokens" in condition else None)
        if self.driver is not None and stopped is None:
            await driver.act(trace.last_reply)
        outcome = await driver.finish(stopped or "final_message")
        trace.info["ludus"] |= {name: getattr(outcome, name) for name in _NOTED}
        outcome.raise_for_failure()

    @vf.reward  # type: ignore[untyped-decorator]
    async def reward(self, trace: vf.Trace) -> float:
        """Return the episode's total; raise `ValueError` if there is none, because 0.0 would be recorded for None."""
        outcome = trace.info["ludus"]
        if outcome.get("value") is None:
            raise ValueError(f"unscored: {outcome.get('reason') or 'the episode has not ended'}")
        return float(outcome["value"])

    @vf.metric  # type: ignore[untyped-decorator]
    async def components(self, trace: vf.Trace) -> dict[str, float]:
        """Return the components of the reward."""
        return dict(trace.info["ludus"].get("components", {}))


class LudusHarnessConfig(vf.HarnessConfig):  # type: ignore[misc]
    """The options of `LudusHarness`."""

    attempts: int = 3
    """How many times a request to the model is made before its failure is raised."""


class LudusHarness(vf.Harness[LudusHarnessConfig]):  # type: ignore[misc]
    """A chat loop in verifiers' own process: the model's replies go to the episode until it is done."""

    APPENDS_SYSTEM_PROMPT, EXECUTES_CODE, NEEDS_CONTAINER = True, False, False

    async def launch(
        self, ctx: Any, trace: Any, runtime: Any, endpoint: str, secret: str, mcp_urls: dict[str, str], data: Any
    ) -> Any:
        """Play the episode with the model behind `endpoint`."""
        driver: Driver = trace.state._driver
        system = [{"role": "system", "content": data.system_prompt}] if data.system_prompt else []
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {secret}"}, timeout=timeout) as http:
            while not driver.done:
                body = {"model": ctx.model, **driver.request, "messages": [*system, *driver.messages]}
                status, reply = await self._complete(http, f"{endpoint}/chat/completions", body)
                if status == 200:
                    await driver.act(reply)
                elif trace.stop_condition is not None:
                    break
                elif status in (400, 413, 422) and _CONTEXT_FULL.search(str(reply)):
                    trace.state._stopped = "context_limit"
                    break
                else:
                    raise InfrastructureFailed(f"the model endpoint answered {status}: {str(reply)[:500]}")
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")

    async def _complete(self, http: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> tuple[int, Any]:
        """Return the status and the body of an answer. All tries have one key, so the trace gets one turn."""
        headers, backoff, tries = {"Idempotency-Key": uuid.uuid4().hex}, Backoff(0.5), 0
        while True:
            tries += 1
            async with http.post(url, json=body, headers=headers) as response:
                if tries >= self.config.attempts or response.status not in RETRIED_STATUSES:
                    return response.status, await response.json()
            await asyncio.sleep(backoff.next())

    async def cleanup(self, trace: Any, runtime: Any) -> None:
        """Close the episode, unless `LudusEnv` closes it."""
        await trace.state._open.aclose()
