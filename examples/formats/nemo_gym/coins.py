"""A resources server of NeMo Gym: find the coin that is too heavy or too light with few weighings.

ludus serve 'nemo-gym:examples/formats/nemo_gym/coins.py:Coins#tasks=examples/formats/nemo_gym/rows.jsonl,python=PATH'
"""

from __future__ import annotations

import re
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.server_utils import SESSION_ID_KEY
from pydantic import BaseModel, Field


class CoinsConfig(BaseResourcesServerConfig):
    """The configuration of the server."""

    most_weighings: int = 6
    """How often the scale may be used."""


class CoinsSeed(BaseSeedSessionRequest):
    """The fields of a row that a session needs."""

    coins: int
    odd: int
    heavy: bool


class CoinsVerify(BaseVerifyRequest):
    """A row with the response of the model."""

    odd: int
    par: int


class CoinsVerdict(BaseVerifyResponse):
    """The reward with its two parts."""

    reward_components: dict[str, float]
    weighings: int


class Weighing(BaseModel):
    """The coins in the two pans, by number."""

    left: list[int] = Field(min_length=1)
    right: list[int] = Field(min_length=1)


class Coins(SimpleResourcesServer):
    """Coins that look alike, one of them too heavy or too light, and a scale with two pans."""

    config: CoinsConfig
    sessions: dict[str, dict[str, Any]] = Field(default_factory=dict)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/weigh")(self.weigh)
        app.post("/count_weighings")(self.count_weighings)
        return app

    async def seed_session(self, request: Request, body: CoinsSeed) -> BaseSeedSessionResponse:
        self.sessions[request.session[SESSION_ID_KEY]] = {**body.model_dump(), "weighings": 0}
        return BaseSeedSessionResponse()

    async def weigh(self, request: Request, body: Weighing) -> dict[str, str]:
        """Put coins on the scale and read which pan sinks."""
        session = self._session(request)
        pans = body.left + body.right
        if len(set(pans)) < len(pans) or not all(1 <= coin <= session["coins"] for coin in pans):
            raise HTTPException(422, f"Name each coin once, by a number from 1 to {session['coins']}.")
        if session["weighings"] == self.config.most_weighings:
            raise HTTPException(409, "The scale is worn out.")
        session["weighings"] += 1
        excess = 1 if session["heavy"] else -1
        weights = [sum(10 + excess * (coin == session["odd"]) for coin in pan) for pan in (body.left, body.right)]
        sinks = "neither" if weights[0] == weights[1] else "left" if weights[0] > weights[1] else "right"
        return {"sinks": sinks}

    async def count_weighings(self, request: Request) -> dict[str, int]:
        return {"weighings": self._session(request)["weighings"]}

    async def verify(self, request: Request, body: CoinsVerify) -> CoinsVerdict:
        """Pay 0.75 for the right coin and, if it is right, 0.25 for few weighings."""
        session = self._session(request)
        last = body.response.output[-1] if body.response.output else None
        said = last.content[0].text if last is not None and last.type == "message" else ""
        numbers = re.findall(r"\d+", said)
        found = bool(numbers) and int(numbers[-1]) == body.odd
        parts = {"found": 0.75 * found, "frugal": 0.25 * (found and session["weighings"] <= body.par)}
        return CoinsVerdict(
            **body.model_dump(), reward=sum(parts.values()), reward_components=parts, weighings=session["weighings"]
        )

    def _session(self, request: Request) -> dict[str, Any]:
        session = self.sessions.get(request.session[SESSION_ID_KEY])
        if session is None:
            raise HTTPException(400, "There is no such session; call seed_session first.")
        return session


if __name__ == "__main__":
    Coins.run_webserver()
