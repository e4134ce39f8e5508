"""The JSON API of signing in on a device, under /api/v1. A person confirms it on the page `/account/device`.

    POST   /login/device         DeviceLogin → DeviceAuthorization
    POST   /login/device/token   DeviceCode → DeviceAnswer

Field names and states are those of RFC 8628. The answer `authorization_pending` is no error here; where a sign-in has
ended without a token, the error has `expired_token` or `access_denied` in `data.error`.
"""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request
from pydantic import ConfigDict

from ludus.hub.parts.hub import Hub
from ludus.hub.people.device_sign_ins import INTERVAL, LASTS
from ludus.protocol.errors import Conflict, Unauthenticated
from ludus.registry.types.people import DeviceAnswer, DeviceAuthorization, DeviceCode, DeviceLogin

PAGE: Final = "/account/device"
"""The path of the page on which a person enters the code."""


class DeviceLoginBody(DeviceLogin):
    """`DeviceLogin`, built now: FastAPI cannot describe a body whose type is built at its first use."""

    model_config = ConfigDict(defer_build=False)


class DeviceCodeBody(DeviceCode):
    """`DeviceCode`, built now."""

    model_config = ConfigDict(defer_build=False)


def router(hub: Hub) -> APIRouter:
    """Return the routes."""
    routes, people = APIRouter(prefix="/api/v1", tags=["Account"]), hub.people

    @routes.post("/login/device", summary="Begin to sign in on a device", status_code=201)
    def begin(request: Request, body: DeviceLoginBody) -> DeviceAuthorization:
        address = hub.authenticator.address(request)
        if hub.authenticator.is_open:
            raise Conflict("this hub has no accounts: everyone who can reach it may use it without signing in")
        people.rates.hit("login_address", address)
        secret, code = people.devices.begin(body, address)
        return DeviceAuthorization(
            device_code=secret, user_code=code, verification_uri=hub.base_url(request) + PAGE,
            expires_in=int(LASTS.total_seconds()), interval=INTERVAL,
        )  # fmt: skip

    @routes.post("/login/device/token", summary="Ask for the token of a sign-in on a device")
    def token(request: Request, body: DeviceCodeBody) -> DeviceAnswer:
        address = hub.authenticator.address(request)
        people.rates.hit("address", address)
        try:
            return people.devices.redeem(body.device_code, address)
        except Unauthenticated:
            people.rates.hit("wrong", address)
            raise

    return routes
