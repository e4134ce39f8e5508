"""A resources server of NeMo Gym whose tools and verdicts break as the row and the calls say."""

import asyncio
import json
import os

from fastapi import FastAPI, Request, Response
from nemo_gym.base_resources_server import BaseResourcesServerConfig, SimpleResourcesServer
from nemo_gym.server_utils import SESSION_ID_KEY
from pydantic import Field


class Faults(SimpleResourcesServer):
    """Counts calls by session, and breaks on request."""

    config: BaseResourcesServerConfig
    counts: dict = Field(default_factory=dict)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/do")(self.do)
        app.post("/forget")(self.forget)
        return app

    async def do(self, request: Request) -> dict:
        what = (await request.json())["what"]
        if what == "raise":
            raise RuntimeError("broken tool")
        if what == "exit":
            os._exit(3)
        if what == "hang":
            await asyncio.sleep(3600)
        session = request.session[SESSION_ID_KEY]
        self.counts[session] = self.counts.get(session, 0) + 1
        return {"count": self.counts[session]}

    async def forget(self, request: Request) -> dict:
        """Answer as a server that does not know the cookie."""
        request.session[SESSION_ID_KEY] = "another"
        return {}

    async def verify(self, request: Request) -> Response:
        body = await request.json()
        reply = body["reply"]
        if reply == "count":
            return Response(json.dumps({"reward": self.counts.get(request.session[SESSION_ID_KEY], 0)}))
        return Response(reply, status_code=body.get("status", 200))


def app() -> FastAPI:
    config = BaseResourcesServerConfig(name="faults", host="127.0.0.1", port=1, entrypoint="app.py")
    server = Faults.model_construct(config=config, counts={})
    made = server.setup_webserver()
    server.setup_exception_middleware(made)
    return made


if __name__ == "__main__":
    import socket

    import uvicorn

    place = socket.create_server(("127.0.0.1", 0))
    print(place.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(app(), log_level="error")).run(sockets=[place])
