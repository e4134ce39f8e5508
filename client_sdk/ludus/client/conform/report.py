"""Running the checks against a server, and what is reported of it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import aiohttp

from ludus.client.conform import control, ors, play
from ludus.client.conform.checks import Check, Fault, NotApplicable, Status, Suite, Verdict
from ludus.client.conform.probes import SECONDS, Bench, ChannelControl, Control, McpControl, Target
from ludus.protocol.errors import ConnectionFailed, EnvironmentNotFound, LudusError
from ludus.protocol.identifiers import EXTENSION_ID, EXTENSION_VERSION

WIRES: Final = ("channel", "mcp", "play", "ors")
"""What can be checked, and in which order."""

_SUITES: Final[dict[str, Suite]] = {
    "channel": control.suite,
    "mcp": control.suite,
    "play": play.suite,
    "ors": ors.suite,
}
OnVerdict = Callable[[Verdict], None]


@dataclass(frozen=True, slots=True)
class Report:
    """What came of all checks."""

    url: str
    environment: str
    verdicts: tuple[Verdict, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing failed."""
        return all(verdict.status != "failed" for verdict in self.verdicts)

    def as_json(self) -> dict[str, Any]:
        """The report as JSON values."""
        counts = Counter(verdict.status for verdict in self.verdicts)
        return {
            "standard": EXTENSION_ID,
            "version": EXTENSION_VERSION,
            "url": self.url,
            "environment": self.environment,
            "conforms": self.passed,
            "counts": {status: counts[status] for status in ("passed", "failed", "skipped")},
            "checks": [asdict(verdict) for verdict in self.verdicts],
        }


async def conform(
    url: str,
    *,
    token: str | None = None,
    wires: Sequence[str] = WIRES,
    environment: str | None = None,
    split: str | None = None,
    on_verdict: OnVerdict | None = None,
) -> Report:
    """Check a running server from outside.

    Args:
        url: its address.
        token: a trainer token, for servers that want one.
        wires: which of `WIRES` to check.
        environment: which environment to play; the first one by default.
        split: which split to take tasks from; the first one that is no test split by default.
        on_verdict: told each verdict as it comes.

    Raises:
        ConnectionFailed: the server cannot be reached.
        EnvironmentNotFound: it has no such environment.
    """
    url = url.rstrip("/")
    timeout = aiohttp.ClientTimeout(total=SECONDS)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as http:
        target = await _target(http, url, token, environment, split)
        verdicts = []
        for wire in wires:
            for check in _SUITES[wire].checks:
                verdict = await _judge(wire, check, target, http)
                verdicts.append(verdict)
                if on_verdict is not None:
                    on_verdict(verdict)
    return Report(url, str(target.environment["name"]), tuple(verdicts))


async def _target(
    http: aiohttp.ClientSession, url: str, token: str | None, name: str | None, split: str | None
) -> Target:
    bench = Bench(ChannelControl(http, url, token), Target(url, token, {}, ""), http)
    try:
        listed = (await bench.must("environments/list"))["environments"]
    except (aiohttp.ClientError, OSError, Fault) as error:
        try:
            bench.control = McpControl(http, url, token)
            listed = (await bench.must("environments/list"))["environments"]
        except (aiohttp.ClientError, OSError, Fault):
            raise ConnectionFailed(f"{url} answers on neither control wire: {error}", url=url) from None
    found = next((one for one in listed if name in (None, one["name"])), None)
    if found is None:
        have = ", ".join(one["name"] for one in listed)
        raise EnvironmentNotFound(f"{url} has no environment {name!r}; it has {have}")
    splits = [one["name"] for one in found["splits"] if one["type"] != "test"] or [found["splits"][0]["name"]]
    return Target(url, token, found, split or splits[0])


async def _judge(wire: str, check: Check, target: Target, http: aiohttp.ClientSession) -> Verdict:
    began = time.perf_counter()
    status: Status = "passed"
    detail = ""
    kind: Callable[..., Control] = McpControl if wire == "mcp" else ChannelControl
    try:
        async with asyncio.timeout(2 * SECONDS), Bench(kind(http, target.url, target.token), target, http) as bench:
            await check.run(bench)
    except NotApplicable as reason:
        status, detail = "skipped", str(reason)
    except Fault as fault:
        status, detail = "failed", str(fault)
    except TimeoutError:
        status, detail = "failed", "no answer in time"
    except (aiohttp.ClientError, OSError, LudusError) as error:
        status, detail = "failed", f"the connection broke: {error or type(error).__name__}"
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        status, detail = "failed", f"a reply lacks what the standard demands: {type(error).__name__} {error}"
    seconds = round(time.perf_counter() - began, 4)
    return Verdict(wire, check.name, check.title, check.requirements, check.negative, status, detail, seconds)
