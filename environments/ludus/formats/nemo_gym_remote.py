"""Sessions with a running resources server of NeMo Gym: a cookie is an episode.

A request whose reply is lost is not made again, since the server could carry it out twice: the episode fails, unscored.
A resources server that is started again accepts the cookies of before, but has forgotten their sessions. So once a
server could not be reached, all episodes that began before fail.
"""

from __future__ import annotations

from typing import Any

import aiohttp

from ludus.formats.hosting import HostedCodeError
from ludus.formats.hosting.description import Description, read_descriptions
from ludus.formats.hosting.remote import bearer_headers
from ludus.formats.inside import nemo_gym_wire as wire
from ludus.formats.inside.adapter import NotUsable
from ludus.formats.openenv_remote import run_apart
from ludus.protocol.errors import AuthoringError, InfrastructureFailed

_PROBE_SECONDS = 30.0
_KEPT_SECONDS = 2.0
"""How long a connection is kept for the next request; less than any server keeps it."""


class NemoGymServer:
    """A running resources server.

    Args:
        url: its address, `http://host:port`.
        name: the name of the environment.
        options: the options of the format.

    Raises:
        AuthoringError: a row cannot be played, or the variable with the token is not set.
    """

    def __init__(self, url: str, name: str, options: dict[str, Any]) -> None:
        self.url = url.rstrip("/")
        self.name = name
        self.options = options
        self.reply_seconds = float(options["timeout_seconds"])
        self.outages = 0
        """How often the server could not be reached."""
        self.headers = bearer_headers("nemo-gym", options.get("token_variable"))
        try:
            self.rows = wire.Rows(wire.files_of(options, f"nemo-gym:{url}#tasks=rows.jsonl"))
        except NotUsable as error:
            raise AuthoringError(f"nemo-gym: {error}") from None

    def start(self) -> tuple[Description, ...]:
        """Return the description of the server's environment. Blocks.

        Raises:
            AuthoringError: it cannot be reached, or is no resources server.
        """
        try:
            wire.check_routes(run_apart(self._paths()), self.url)
        except NotUsable as error:
            raise AuthoringError(f"nemo-gym: {error}; name the address of a resources server") from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise AuthoringError(
                f"nemo-gym: {self.url} cannot be reached: {error or type(error).__name__}; start the server, and check "
                "its address"
            ) from None
        broken = {
            "exactly-once": "a call whose reply is lost fails the episode and is not repeated",
            "isolation": "the server decides what its sessions share",
            "restarts": "a server that is restarted between two calls forgets its sessions without a sign",
        }
        package = f"a NeMo Gym resources server at {self.url}"
        return read_descriptions(
            [wire.describe(self.name, self.rows, package=package, version="0", text="", broken=broken)]
        )

    async def _paths(self) -> Any:
        timeout = aiohttp.ClientTimeout(_PROBE_SECONDS)
        async with (
            aiohttp.ClientSession(headers=self.headers, timeout=timeout) as http,
            http.get(self.url + "/openapi.json") as reply,
        ):
            try:
                found = await reply.json(content_type=None)
            except ValueError:
                return None
            return found.get("paths") if isinstance(found, dict) else None

    def acquire(self) -> None:
        """Do nothing: the server runs elsewhere."""

    def release(self) -> None:
        """Do nothing: each episode has a session of its own."""

    def ask(self, call: str, **parameters: Any) -> Any:
        """Return a task."""
        assert call == "task"
        return wire.task_of(parameters["split"], parameters["index"])

    async def connect(self) -> NemoGymSession:
        """Return a session for one episode, which begins when the episode is opened."""
        return NemoGymSession(self)


class NemoGymSession:
    """One episode on a running server."""

    def __init__(self, server: NemoGymServer) -> None:
        self._server = server
        self._outages = server.outages
        self._http: aiohttp.ClientSession | None = None
        self._rollout: wire.Rollout | None = None
        self._broken = False

    async def call(self, name: str, /, **parameters: Any) -> Any:
        """See `ludus.formats.hosting.Session`."""
        server = self._server
        if name == "open":
            options = server.options
            row = server.rows.get(parameters["task"])
            self._outages = server.outages
            self._rollout = wire.Rollout(row, options["max_steps"], options["tool_errors"])
            return await self._run(self._rollout.begin())
        if self._rollout is None or self._broken:
            raise InfrastructureFailed("the session with the resources server broke off earlier")
        if self._outages != server.outages:
            raise InfrastructureFailed(
                f"{server.url} could not be reached since the episode began, so it may have forgotten its session"
            )
        if name == "grade":
            return await self._run(self._rollout.grade(parameters["answer"]))
        return await self._run(self._rollout.call(parameters["tool"], parameters["arguments"]))

    async def _run(self, plan: wire.Plan) -> Any:
        self._broken = True
        server = self._server
        try:
            request = next(plan)
            while True:
                request = plan.send(await self._send(request))
        except StopIteration as ended:
            self._broken = False
            return ended.value
        except wire.ServerError as error:
            raise HostedCodeError(f"the resources server at {server.url} failed: {error}") from None
        except wire.SessionLost as error:
            raise InfrastructureFailed(f"{server.url}: {error}") from None
        except (aiohttp.ClientError, OSError) as error:
            if not isinstance(error, TimeoutError):
                server.outages += 1
            raise InfrastructureFailed(f"{server.url} does not answer: {error or type(error).__name__}") from None
        finally:
            plan.close()

    async def _send(self, request: wire.Request) -> wire.Reply:
        server = self._server
        if self._http is None:
            connector = aiohttp.TCPConnector(keepalive_timeout=_KEPT_SECONDS)
            self._http = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=server.headers,
                timeout=aiohttp.ClientTimeout(server.reply_seconds),
            )
        url = server.url + request.path
        async with self._http.post(url, json=request.body, headers=dict(request.headers), allow_redirects=False) as got:
            return wire.Reply(got.status, await got.read(), tuple(got.headers.getall("Set-Cookie", ())))

    async def aclose(self) -> None:
        """Close the connection. A resources server has no request that ends a session."""
        if self._http is not None:
            await self._http.close()
