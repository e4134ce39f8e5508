"""The Open Reward Standard over HTTP and server-sent events, as `ors-sdk` and `openreward` speak it.

Where the published text and the two SDKs disagree, the server accepts all forms: both spellings of task routes, bare
paths, secrets in body and header, events or JSON from `/create_session`. Extensions are optional and at the root of
messages: `X-Seed` (or `seed` in the body) of `/create` seeds the episode.

In this standard every reply holds rewards, so a token needs the scopes `episodes:run` and `rewards:read`.

How this works, in the order of reading:

* `routes` maps paths to handlers. The handlers are in `discovery` (environments, splits, tasks), `sessions` (from
  `/create_session` to `/delete_session`) and `calls` (`/call` and `/score_group`).
* `request` is one HTTP request and its replies. `encoding` writes Ludus's values as ORS's JSON and events.
* `server` is what all handlers share. `session_store` holds the sessions, and `repeats` finds out whether a request
  without a key was sent again because its reply was lost.
"""

from __future__ import annotations

from ludus.server.transports.ors.routes import routes

__all__ = ["routes"]
