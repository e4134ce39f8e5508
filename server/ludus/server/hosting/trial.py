"""Plays one episode of environments before their server is announced, so that one that cannot be played is refused.

How this works: the episodes run in a second host with the served catalog, whose classes have been started already. So
they appear in no journal, no count and no curriculum of the server. An episode is started, gets an empty final message
where messages are graded, and is closed. What environment code raises in it refuses the server; a reward of 0, or one
that the environment itself leaves unscored, does not.
"""

from __future__ import annotations

import secrets

from ludus.protocol import episodes as e
from ludus.protocol.errors import AuthoringError, LudusError
from ludus.protocol.identifiers import SUBMIT_TOOL
from ludus.server.auth.principal import Principal
from ludus.server.execution import user_code
from ludus.server.hosting.host import EpisodeHost
from ludus.server.tasks.catalog import Published
from ludus.server.tasks.formats import Check, is_of_format


async def try_environments(served: EpisodeHost, check: Check) -> None:
    """Play one episode of each environment that a check is for.

    Args:
        served: the host of the server, which has been entered.
        check: which environments to play.

    Raises:
        AuthoringError: an episode failed; the message has the last line of its traceback.
    """
    chosen = [
        published
        for published in served.catalog.values()
        if check == "all" or (check == "formats" and is_of_format(published.cls))
    ]
    if not chosen:
        return
    host = EpisodeHost(served.catalog, limits=served.limits)
    host.starts_classes = False
    failed = []
    async with host:
        for published in chosen:
            reason = await _fault_of_episode(host, published)
            if reason is not None:
                failed.append(f"no episode of {published.name!r} can be played to its end: {reason}")
    if failed:
        raise AuthoringError(f"{'; '.join(failed)} (the log has the traceback; --no-check serves it all the same)")


async def _fault_of_episode(host: EpisodeHost, published: Published) -> str | None:
    """Play an episode, and return why it failed; None if it did not."""
    principal = Principal.open()
    split = next(
        (name for name, candidate in published.splits.items() if candidate.type != "test"), next(iter(published.splits))
    )
    causes: list[BaseException | str] = []
    watching = user_code.watched_causes.set(causes)
    try:
        start = e.StartParams(environment=published.name, split=split, index=0, key=secrets.token_hex(8))
        for episode in await host.begin(start, principal):
            if published.gradable:
                await host.play(episode.id, SUBMIT_TOOL, {"answer": ""})
            await host.discard(episode.id)
    except LudusError as error:
        return _last_line(causes[0]) if causes else error.message
    finally:
        user_code.watched_causes.reset(watching)
    return None


def _last_line(cause: BaseException | str) -> str:
    """Return what the last line of a cause's traceback says."""
    if isinstance(cause, str):
        return cause
    message = getattr(cause, "message", None)  # of hosted code: the type and the text of what it raised
    return message if isinstance(message, str) else f"{type(cause).__name__}: {user_code.message_of(cause, '')}"
