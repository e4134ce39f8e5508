"""NeMo Gym: a resources server whose sessions are episodes of a Ludus server.

    from ludus.integrations.nemo_gym import LudusResourcesServer

    if __name__ == "__main__":
        LudusResourcesServer.run_webserver()

Save this as `resources_servers/ludus/app.py` and make the data with `ludus export --form nemo-gym`: each row has the
prompt, the tools, and in its field `ludus` the address of the task.

* `seed_session` starts the episode of a row. Each tool is a route that makes one call in it. `verify` submits the
  model's final message if there is one, closes the episode and returns its value.
* NeMo RL masks a sample with `mask_sample`, but its reward still counts in the baseline of the group. So an unscored
  episode also has the mean of its scored siblings, see `ludus.integrations.siblings`.
* NeMo Gym's agents own the loop, so an episode cannot be played again here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from ludus.client import Driver, EpisodeOutcome, TaskAddress
from ludus.integrations.peers import require
from ludus.integrations.siblings import SIBLINGS, Sibling
from ludus.integrations.unscored import count, not_started
from ludus.protocol.errors import InvalidParams, LudusError

require("nemo-gym", "0.4.0")

from fastapi import FastAPI, HTTPException, Request  # noqa: E402
from fastapi.responses import PlainTextResponse  # noqa: E402
from nemo_gym.base_resources_server import (  # noqa: E402  # pyright: ignore[reportMissingImports]
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.server_utils import SESSION_ID_KEY  # noqa: E402  # pyright: ignore[reportMissingImports]
from pydantic import ConfigDict, PrivateAttr  # noqa: E402

ADAPTER: Final = "nemo-gym"
"""The name under which unscored episodes are counted."""

ENDED: Final = "Error: the episode has ended; no more tools can be called."
"""What the model gets for a call after the end."""


class LudusConfig(BaseResourcesServerConfig):  # type: ignore[misc]
    """The configuration of the server."""

    sibling_seconds: float = 600.0
    """How long `verify` waits for the group's other episodes if an episode is unscored."""


class LudusSeedRequest(BaseSeedSessionRequest):  # type: ignore[misc]
    """A row of the data."""

    model_config = ConfigDict(extra="allow")
    ludus: dict[str, Any]
    """The address of the task."""


class LudusVerifyRequest(BaseVerifyRequest):  # type: ignore[misc]
    """A row of the data with the model's response."""

    model_config = ConfigDict(extra="allow")


class LudusVerifyResponse(BaseVerifyResponse):  # type: ignore[misc]
    """The value of the episode."""

    model_config = ConfigDict(extra="allow")
    mask_sample: bool
    """Whether the episode is unscored, so that nothing must be learned from it."""
    ludus_outcome: dict[str, Any]
    """The value, why the episode is unscored, and the components."""


@dataclass(slots=True)
class _Session:
    stack: AsyncExitStack
    sibling: Sibling
    driver: Driver | None = None
    outcome: EpisodeOutcome | None = None
    """The outcome of an episode that could not be started."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class LudusResourcesServer(SimpleResourcesServer):  # type: ignore[misc]
    """Serves the tools and the values of tasks on Ludus servers. It keeps sessions in memory: use one worker."""

    config: LudusConfig
    _sessions: dict[str, _Session] = PrivateAttr(default_factory=dict)

    def setup_webserver(self) -> FastAPI:
        """Return the app, with a route for every tool after NeMo Gym's own routes."""
        app: FastAPI = super().setup_webserver()
        app.post("/{tool}")(self.call_tool)
        inner = app.router.lifespan_context

        @asynccontextmanager
        async def closing(app: FastAPI) -> AsyncIterator[Any]:
            async with inner(app) as state:
                yield state
                for session in self._sessions.values():
                    await session.stack.aclose()

        app.router.lifespan_context = closing
        return app

    async def seed_session(self, request: Request, body: LudusSeedRequest) -> BaseSeedSessionResponse:
        """Start the episode of a row, and end an earlier one of the same session."""
        try:
            address = TaskAddress.from_json(body.ludus)
        except InvalidParams as error:
            raise HTTPException(422, f"{error.message}; make the rows with ludus export --form nemo-gym") from None
        earlier = self._sessions.pop(request.session[SESSION_ID_KEY], None)
        if earlier is not None:
            await earlier.stack.aclose()
        stack = AsyncExitStack()
        key = json.dumps(body.ludus, sort_keys=True)
        session = _Session(stack, stack.enter_context(SIBLINGS.join(key)))
        try:
            session.driver = await stack.enter_async_context(address.drive(form="openai-responses"))
        except LudusError as error:
            session.outcome = not_started(error)
        self._sessions[request.session[SESSION_ID_KEY]] = session
        return BaseSeedSessionResponse()

    async def call_tool(self, tool: str, request: Request) -> PlainTextResponse:
        """Make one call, and return what the environment answers as text."""
        session = self._sessions.get(request.session[SESSION_ID_KEY])
        if session is None:
            raise HTTPException(404, f"there is no episode for the tool {tool}: call /seed_session first")
        arguments = (await request.body()).decode(errors="replace")
        async with session.lock:
            if session.driver is None or session.driver.done:
                return PlainTextResponse(ENDED)
            call = {"type": "function_call", "call_id": "call", "name": tool, "arguments": arguments}
            observations, _ = await session.driver.act({"output": [call]})
        texts = [entry["output"] for entry in observations if entry.get("type") == "function_call_output"]
        return PlainTextResponse("\n".join(map(str, texts)) or ENDED)

    async def verify(self, request: Request, body: LudusVerifyRequest) -> LudusVerifyResponse:
        """Submit the final message, close the episode, and return its value."""
        session = self._sessions.pop(request.session[SESSION_ID_KEY], None)
        if session is None:
            raise HTTPException(404, "there is no episode to verify: call /seed_session first")
        async with session.stack:
            async with session.lock:
                outcome = count(session.outcome or await _finish(session.driver, body.response), ADAPTER)
            value = await session.sibling.value(outcome, self.config.sibling_seconds)
        return LudusVerifyResponse(
            **body.model_dump(),
            reward=value,
            mask_sample=outcome.value is None,
            ludus_outcome={
                "value": outcome.value,
                "reason": outcome.reason,
                "components": dict(outcome.components),
            },
        )


async def _finish(driver: Driver | None, response: Any) -> EpisodeOutcome:
    assert driver is not None
    if response.incomplete_details is not None:
        return await driver.finish("context_limit")
    last = response.output[-1] if response.output else None
    if not driver.done and last is not None and last.type == "message":
        await driver.act({"output": [last.model_dump(mode="json")]})
    return await driver.finish("turn_limit")
