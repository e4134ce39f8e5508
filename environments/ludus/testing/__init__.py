"""Test an environment: serve it in this process and play it over the wire, as trainers and agents do.

    from ludus.testing import play
    from treasure import TreasureHunt

    def test_the_oracle_earns_everything():
        with play(TreasureHunt) as hunt:
            assert hunt.oracle(index=3).reward == 1.0

    def test_a_wrong_place():
        with play(TreasureHunt) as hunt:
            episode = hunt.start(index=3)
            assert "Only sand" in episode.dig(metre=1).text

`play` works in `with` and in `async with`, where the same methods are awaited. The pytest fixture `play_environment`
does the same without a block: `hunt = play_environment(TreasureHunt)`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ludus.testing.blocking import BlockingEnvironment, BlockingEpisode
    from ludus.testing.environment import LocalEnvironment, LocalEpisode, Step
    from ludus.testing.serve import play

__all__ = ["BlockingEnvironment", "BlockingEpisode", "LocalEnvironment", "LocalEpisode", "Step", "play"]

# Names are imported at first use: pytest imports this package for its plugin, also where no test uses it.
_HOMES: Final = {
    "BlockingEnvironment": "ludus.testing.blocking",
    "BlockingEpisode": "ludus.testing.blocking",
    "LocalEnvironment": "ludus.testing.environment",
    "LocalEpisode": "ludus.testing.environment",
    "Step": "ludus.testing.environment",
    "play": "ludus.testing.serve",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
