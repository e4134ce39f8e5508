"""A template that cannot be used is refused before a model is loaded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from chat_models import HERMES, chatml
from token_play import ADD

from ludus.rendering import RenderingError
from ludus.trainer import train
from ludus.trainer.core.config import TrainConfig


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (HERMES.replace("<tool_call>", "<function_call>"), "cannot tell from the chat template how models/tiny calls"),
        (HERMES.replace("tools | tojson", "'none'"), "leaves out the tool add"),
        (
            HERMES.replace("<tool_response>\n{{ message.content }}", "<tool_response>"),
            "leaves out the results of tools",
        ),
    ],
)
async def test_a_template_is_refused_before_a_model_is_loaded(
    template: str, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tokenizer = chatml(template)
    monkeypatch.setattr(tokenizer, "name_or_path", "models/tiny")

    @asynccontextmanager
    async def open_source(config: TrainConfig) -> AsyncIterator[Any]:
        yield SimpleNamespace(environments=[SimpleNamespace(tools=(ADD,))])

    def no_worker(*arguments: Any) -> None:
        raise AssertionError("the model was loaded")

    monkeypatch.setattr(train, "open_source", open_source)
    monkeypatch.setattr(train, "load_tokenizer", lambda model: tokenizer)
    monkeypatch.setattr(train, "Worker", no_worker)
    environment = {"url": "http://127.0.0.1:1", "split": "train"}
    config = TrainConfig.model_validate(
        {"output": tmp_path, "model": {"path": "models/tiny"}, "environments": [environment]}
    )
    with pytest.raises(RenderingError, match=message) as error:
        async with train.open_run(config, SimpleNamespace(device="cpu")):  # type: ignore[arg-type]
            pass
    assert "\n" not in str(error.value)
    assert "models/tiny" in str(error.value)
