"""Checks that an environment's `version` changes with its behavior: what the last report recorded must still happen.

A report holds some episodes: their actions, and a digest of everything that the environment gave. Outcomes are compared
and not the source, because a comment changes the source and nothing else, while a helper module, a data file or another
version of a package changes outcomes and leaves the class's source as it was.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from ludus.protocol.errors import LudusError
from ludus.validation.core.checks import Evidence, NotApplicable, Problem, Suite, error
from ludus.validation.core.last_report import LEFT_OUT, RecordedEpisode, digest_of
from ludus.validation.core.target import ValidationTarget, evidence_of
from ludus.validation.core.transcripts import Transcript, perform, spoken

suite = Suite()


@suite.check("version", "What the last report recorded still happens, unless the version is another one")
async def version(target: ValidationTarget) -> AsyncIterator[Problem]:
    previous = target.last_report
    if previous is None:
        raise NotApplicable("this needs the last report, which `--since FILE` names")
    if previous.version != target.info.version:
        raise NotApplicable(f"the version has changed from {previous.version} to {target.info.version}")
    if not previous.recorded:
        raise NotApplicable("the last report has no episodes to compare with")
    changed: list[Evidence] = []
    for recorded in previous.recorded:
        script = recorded.script()
        try:
            played = await perform(target.environment, script, target.settings.secrets)
        except LudusError as failure:
            changed.append(evidence_of(script, f"its episode does not start any more: {failure.message}"))
            continue
        if change := _difference(recorded, played):
            changed.append(evidence_of(script, change))
    if changed:
        yield error(
            "the same actions give something else than in the last report, and the version is still "
            f"{previous.version}: increase `version`, so that recorded episodes, curricula and leaderboards tell the "
            "two apart",
            changed,
            cause="version",
        )


def _difference(recorded: RecordedEpisode, played: Transcript) -> str | None:
    now = [(name, value) for name, value in played.without(*LEFT_OUT)]
    for (name, digest), (name_now, value) in zip(recorded.outcomes, now, strict=False):
        if name != name_now:
            return f"{spoken(name_now)} comes where {spoken(name)} was"
        if digest != digest_of(value):
            return f"{spoken(name)} is another one: {str(value)[:200]!r}"
    return None if len(now) == len(recorded.outcomes) else "the episode has another length"
