"""Runs of a tiny model on a mix of environments."""

from __future__ import annotations

from pathlib import Path

import pytest
from toys import Even, Serve, groups_of, metrics_of, run, run_config

from ludus.client.mix import mixer, parse_mix, record
from ludus.protocol import Reward
from ludus.trainer.core.settings import mix_tables

pytestmark = pytest.mark.timeout(180)


class Never(Even):
    """Nothing earns anything."""

    def grade(self, answer: str) -> Reward:
        """Always 0."""
        return Reward.of(0.0)


async def test_a_resumed_run_on_a_mix_goes_on_as_if_it_had_not_stopped(
    serve: Serve, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "FAST", 1.0)
    monkeypatch.setattr(record, "SLOW", 4.0)
    monkeypatch.setattr(mixer, "KNOWN_GROUPS", 1)
    server = await serve(Even, Never)
    mix = parse_mix(
        f'url = "{server.url}"\n[policy]\nkind = "progress"\n'
        '[[sources]]\nenvironment = "even"\nsuccess_at = 0.5\n[[sources]]\nenvironment = "never"\n',
        "mix",
    )
    sections = {**mix_tables(mix), "rollouts": {"drop_zero_variance": False}}
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    await run(run_config(whole, tiny, server.url, steps=6, **sections))
    await run(run_config(halves, tiny, server.url, steps=4, **sections))
    await run(run_config(halves, tiny, server.url, steps=6, **sections))
    assert groups_of(halves) == groups_of(whole)
    names = [name for name in metrics_of(whole)[-1] if name.startswith("mix/")]
    assert {"mix/even/share", "mix/never/share", "mix/even/pass_rate", "mix/never/progress"} <= set(names)
    for one, other in zip(metrics_of(whole), metrics_of(halves), strict=True):
        assert {name: one.get(name) for name in names} == pytest.approx({name: other.get(name) for name in names})
    assert any(line["mix/even/share"] != 0.5 for line in metrics_of(whole)), "the shares never moved"
    assert "Shares of the mix" in (whole / "report.html").read_text()
