"""The rollout service: a trainer that cannot import Ludus asks for episodes over HTTP and gets trajectories as tokens.

`ludus rollouts serve` runs it; docs/rollout-service.md describes the HTTP API.

    server      routes, authentication, streams
    jobs        the state of each job: its episodes, what has ended, its lines
    scheduler   decides which episode starts next, and what happens when a worker dies
    pool        the worker processes
    worker      one process that plays episodes of many jobs
    playing     how a worker plays one episode
    spool       lines that are kept until they are acknowledged
    schema      the request and the lines, as types and as a JSON Schema
"""

from __future__ import annotations

from ludus.gateway.service.schema import RolloutRequest, json_schema
from ludus.gateway.service.server import RolloutService, ServiceSettings

__all__ = ["RolloutRequest", "RolloutService", "ServiceSettings", "json_schema"]
