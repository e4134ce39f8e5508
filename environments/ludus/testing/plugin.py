"""The pytest plugin: the fixture `play_environment`, which needs no configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ludus.testing.blocking import BlockingEnvironment


@pytest.fixture
def play_environment() -> Iterator[Callable[..., BlockingEnvironment]]:
    """Serve environments until the test ends: `hunt = play_environment(TreasureHunt)`. Arguments as of `play`."""
    from ludus.testing.serve import play

    with ExitStack() as stack:

        def enter(environment: Any, **options: Any) -> BlockingEnvironment:
            return stack.enter_context(play(environment, **options))

        yield enter
