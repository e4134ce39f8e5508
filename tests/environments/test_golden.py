"""Golden episodes: what an oracle's episodes show and pay is the same as when the version was recorded.

A change of prompts, tools, observations, ends or rewards needs a new version of the environment, since results on the
old one are no longer comparable. After raising `version`, record the new hashes:

    LUDUS_RECORD_GOLDEN=countdown,countdown-easy python -m pytest tests/environments/test_golden.py

`LUDUS_RECORD_GOLDEN=1` records all environments, which takes minutes.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, Final

import pytest

from ludus.environments.browser.driver.chromium import missing_chromium
from ludus.protocol.errors import LudusError
from ludus.server.authoring.procedural import SECRET_VARIABLE

FILE: Final = Path(__file__).parent / "golden.json"
GOLDEN: Final[dict[str, dict[str, str]]] = json.loads(FILE.read_text("utf-8")) if FILE.exists() else {}
RECORDS: Final = os.environ.get("LUDUS_RECORD_GOLDEN", "")
INDICES: Final = (0, 1, 2)
"""The tasks of each split whose episodes are recorded."""


async def episode_hash(player: Any, name: str, split: str, index: int) -> str:
    """Return a hash of all that an oracle's episode shows and pays."""
    [episode] = await player.start(name, split, index, seed=index)
    results = await player.play(episode.episode, player.oracle(name, split, index))
    info = await player.info(episode.episode)
    total, steps = await player.rewards(episode.episode)
    facts = [
        [message.model_dump(mode="json") for message in episode.prompt],
        [tool.model_dump(mode="json") for tool in episode.tools],
        [[one.model_dump(mode="json") for one in result.content] for result in results],
        [reward.model_dump(mode="json") for reward in (*steps, total)],
        [info.status, info.end_reason],
    ]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


async def recorded_now(player: Any, name: str) -> dict[str, str]:
    """Return the version of an environment and the hashes of its episodes."""
    found = {"version": player.host.catalog[name].info.version}
    for split in player.host.catalog[name].splits:
        for index in INDICES:
            found[f"{split}/{index}"] = await episode_hash(player, name, split, index)
    return found


async def test_every_built_in_environment_is_recorded(player: Any) -> None:
    if not RECORDS:
        assert sorted(GOLDEN) == sorted(player.host.catalog)


SLOW = ("browser", "code")
"""Environments whose episodes take seconds; `test_code.py` has digests of its episodes, too."""


@pytest.mark.timeout(300)
@pytest.mark.skipif(bool(RECORDS), reason="the hashes are recorded")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(one, marks=[pytest.mark.suite("breadth")] if "-" in one or one in SLOW else [])
        for one in sorted(GOLDEN)
    ],
)
async def test_an_oracle_sees_and_earns_what_was_recorded_for_this_version(
    player: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SECRET_VARIABLE, raising=False)
    if name.startswith("browser") and (missing := missing_chromium()) is not None:
        pytest.skip(missing)
    try:
        found = await recorded_now(player, name)
    except LudusError as error:
        if type(error).__name__ == "SandboxUnavailable":
            pytest.skip(str(error))
        raise
    golden = GOLDEN[name]
    assert found["version"] == golden["version"], f"{name} has a new version: record it, as this file says"
    assert found == golden, f"{name} behaves differently: raise its version, and record it"


@pytest.mark.timeout(600)
@pytest.mark.skipif(not RECORDS, reason="records only if LUDUS_RECORD_GOLDEN is set")
async def test_record(player: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SECRET_VARIABLE, raising=False)
    names = sorted(player.host.catalog if RECORDS == "1" else RECORDS.split(","))
    found = {name: await recorded_now(player, name) for name in names}
    for name, now in found.items():
        before = GOLDEN.get(name, now)
        assert now == before or now["version"] != before["version"], f"{name} behaves differently: raise its version"
    kept = {name: one for name, one in GOLDEN.items() if name in player.host.catalog}
    found = dict(sorted((kept | found).items()))
    FILE.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
