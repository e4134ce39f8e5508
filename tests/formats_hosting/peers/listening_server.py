"""A server of uvicorn that says when it listens, for programs in the interpreters of peers."""

import asyncio

import uvicorn


class Server(uvicorn.Server):
    """Its event `up` is set once it listens."""

    def __init__(self, config):
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets=None):
        await super().startup(sockets)
        self.up.set()
