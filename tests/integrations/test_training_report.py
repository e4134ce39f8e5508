"""The callback for transformers, in a real `Trainer` that reports to a real hub."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hubs import HubProcess

pytest.importorskip("accelerate", reason="needs accelerate")
pytestmark = [pytest.mark.suite("integrations"), pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(600)]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubProcess]:
    process = HubProcess(tmp_path / "data", "--no-seed")
    yield process
    assert process.stop() == 0


def test_what_a_trainer_logs_is_at_the_hub(hub: HubProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from transformers import Trainer, TrainingArguments

    from ludus.integrations.training_report import hub_callback

    monkeypatch.delenv("LUDUS_HUB_TOKEN", raising=False)
    monkeypatch.setenv("LUDUS_CONFIG_DIR", str(tmp_path / "config"))

    class Line(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def forward(self, x: Any, labels: Any) -> Any:
            return {"loss": ((self.weight * x - labels) ** 2).mean()}

    data: Any = [{"x": torch.tensor([float(n)]), "labels": torch.tensor([2.0 * n])} for n in range(8)]
    callback = hub_callback(hub.url, name="a line")
    arguments = TrainingArguments(
        output_dir=str(tmp_path / "out"), max_steps=6, logging_steps=2, report_to=[], use_cpu=True, save_strategy="no",
        hub_token="abcdefgh", disable_tqdm=True,
    )  # fmt: skip
    Trainer(Line(), arguments, train_dataset=data, callbacks=[callback]).train()
    assert (callback.report.sent, callback.report.dropped, callback.report.problems) == (4, 0, ())
    with hub.client() as client:
        path = callback.report.url.replace(hub.url, f"{hub.url}/api/v1")
        info, curves = client.get(path).json(), client.get(f"{path}/curves").json()["curves"]
    assert (info["state"], info["steps"], info["lastStep"]) == ("finished", 6, 6)
    assert info["config"]["max_steps"] == 6
    assert "abcdefgh" not in str(info)
    assert {one["name"]: one["steps"] for one in curves}["loss"] == [2, 4, 6]
