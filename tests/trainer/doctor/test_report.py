"""The report's form, and what must not be in it."""

from __future__ import annotations

import getpass
import json
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch.utils.flop_counter import FlopCounterMode
from transformers import Qwen3Config, Qwen3ForCausalLM

from ludus.trainer.core.errors import ConfigError
from ludus.trainer.doctor import flops, machine, runner
from ludus.trainer.doctor.checks import CHECKS
from ludus.trainer.doctor.report import Report, Scrubber, write_report

MINUTES = 20
TOPOLOGY = """\
\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV18\tPIX\t0-31\t0\t\tN/A
GPU1\tNV18\t X \tSYS\t32-63\t1\t\tN/A
NIC0\tPIX\tSYS\t X

Legend:

  X    = Self
  NV#  = Connection traversing a bonded set of # NVLinks
"""


def report(**changes: Any) -> dict[str, Any]:
    """A report as JSON."""
    return {
        **{"format": "ludus-gpu-report", "version": 1, "ludus": "0.1.0", "device": "cuda", "dtype": "bfloat16"},
        **{"small": False, "complete": True, "passed": True, "seconds": 12.5},
        "machine": {
            **{"system": "Linux", "architecture": "x86_64", "cpus": 16, "memory_bytes": 2**37, "python": "3.11.7"},
            **{"packages": {"torch": "2.13.0", "vllm": None}, "driver": "570.1", "cuda": "12.8", "cudnn": 91002},
            **{"nccl": "2.27.3", "topology": [["X"]], "notes": []},
            "gpus": [{"name": "NVIDIA H200", "memory_bytes": 2**37, "capability": "9.0", "peak_flops": 9.89e14}],
        },
        "model": {
            **{"source": "built-in", "architecture": "Qwen3ForCausalLM", "parameters": 1, "layers": 28},
            **{"width": 1024, "vocabulary": 151936, "tied": True},
        },
        "checks": [
            {
                **{"name": "update", "about": "…", "status": "passed", "reason": None, "seconds": 40.0},
                **{"limit_seconds": 150.0, "memory": {"gpu_bytes": 1, "host_bytes": 2}, "figures": {"mfu": 0.2}},
            }
        ],
        **changes,
    }


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = Report.model_validate(report())
    write_report(written, tmp_path / "report.json")
    assert json.loads((tmp_path / "report.json").read_text()) == report()
    assert Report.model_validate_json((tmp_path / "report.json").read_text()) == written
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


@pytest.mark.parametrize("wrong", [{"version": 2}, {"format": "other"}, {"host": "x"}, {"checks": [{"name": "x"}]}])
def test_another_version_or_an_unknown_field_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Report.model_validate(report(**wrong))


def test_names_of_folders_users_hosts_and_addresses_are_removed(tmp_path: Path) -> None:
    scrubber = Scrubber({"model": tmp_path / "model"})
    host, user = socket.gethostname(), getpass.getuser()
    text = scrubber.text(
        f"{tmp_path}/model/config.json and /data/team/secret/run.log on {host} at 10.1.2.3, {Path.home()}/x/y.py, "
        f"not http://127.0.0.1:8000/health, nor 3/4"
    )
    assert text == "<model>/config.json and …/run.log on <host> at <address>, <home>…/y.py, " + (
        "not http://127.0.0.1:8000/health, nor 3/4"
    )
    if user != "root":
        assert scrubber.text(f"for {user}:") == "for <user>:"
    assert scrubber.value({"a": [f"{tmp_path}/model", 1, None]}) == {"a": ["<model>", 1, None]}


def test_all_checks_together_have_limits_of_at_most_20_minutes() -> None:
    limits = sum(check.seconds for check in CHECKS.values()) + 2 * runner.PREPARE_SECONDS
    assert limits <= MINUTES * 60


def test_checks_run_in_their_own_order_and_unknown_ones_are_refused() -> None:
    assert runner.chosen(None) == tuple(CHECKS)
    assert runner.chosen("update, canary") == ("canary", "update")
    for wrong in ("cannary", "", "update,x"):
        with pytest.raises(ConfigError, match="there are: attention-sdpa"):
            runner.chosen(wrong)


def test_the_links_between_gpus_are_read_from_nvidia_smi() -> None:
    assert machine.parse_topology(TOPOLOGY) == [["X", "NV18"], ["NV18", "X"]]
    assert machine.parse_topology("\tGPU0\tCPU Affinity\nGPU0\t X \t0-7\n") == [["X"]]
    assert machine.parse_topology("an error") is None
    assert machine.parse_topology("\tGPU0\tGPU1\nGPU0\t X \tNV18\n") is None


@pytest.mark.parametrize(("heads", "keys", "dim"), [(4, 2, 16), (4, 4, 8)])
def test_the_operations_of_an_update_are_those_that_torch_counts(heads: int, keys: int, dim: int) -> None:
    config = Qwen3Config(
        vocab_size=100,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=heads,
        num_key_value_heads=keys,
        head_dim=dim,
    )
    model, length = Qwen3ForCausalLM(config), 40
    model.set_attn_implementation("eager")
    with FlopCounterMode(display=False) as counter:
        model(torch.ones(1, length, dtype=torch.long)).logits.sum().backward()
    # Eager attention computes all pairs of tokens, of which a causal model needs n (n + 1) / 2.
    unneeded = 2 * 3 * 4 * heads * dim * (length**2 - length * (length + 1) / 2)
    assert flops.training_flops(config, [length], length) == counter.get_total_flops() - unneeded


def test_operations_of_a_model_of_unknown_form_are_not_guessed() -> None:
    dense = {
        **{"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1},
        "vocab_size": 16,
    }
    assert flops.training_flops(SimpleNamespace(**dense), [4], 4)
    for different in ({"num_experts": 4}, {"layer_types": ["linear_attention"]}, {"intermediate_size": None}):
        assert flops.training_flops(SimpleNamespace(**{**dense, **different}), [4], 4) is None


def test_only_whole_gpus_of_the_table_have_a_peak() -> None:
    assert flops.PEAKS["NVIDIA H100 80GB HBM3"] == 989e12
    assert "NVIDIA H100 80GB HBM3 MIG 1g.10gb" not in flops.PEAKS


def test_the_page_names_each_check_and_what_it_shows() -> None:
    page = (Path(__file__).parents[3] / "docs" / "gpu.md").read_text(encoding="utf-8")
    rows = [line.split(" | ")[:2] for line in page.splitlines() if line.startswith("| `") and "`, `" not in line]
    listed = {name.strip("| `"): about for name, about in rows}
    assert {name: listed.get(name) for name in CHECKS} == {name: check.about for name, check in CHECKS.items()}
