from __future__ import annotations

import pytest
from saying import Saying
from scripted import ScriptedEngine

from ludus.rendering import Renderer
from ludus.trainer.core.tiny import make_tokenizer


@pytest.fixture(scope="session")
def renderer() -> Renderer:
    return Renderer(make_tokenizer((), 300))


@pytest.fixture
def engine(renderer: Renderer) -> ScriptedEngine:
    Saying.started.clear()
    return ScriptedEngine(renderer.tokenizer)
