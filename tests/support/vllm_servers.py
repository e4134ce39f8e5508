"""Real vLLM servers on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from ludus.trainer.core.config import VllmEngineConfig

VLLM = Path(__file__).parents[2] / ".peers" / "vllm" / "bin" / "vllm"

MARKS = [
    pytest.mark.skipif(
        not VLLM.exists(), reason="the peer 'vllm' is not installed; `python scripts/peers.py vllm` installs it"
    ),
    pytest.mark.timeout(900),
    pytest.mark.suite("vllm"),
]
"""The marks of a test that starts a server."""


def vllm_config(*arguments: str, **variables: str) -> VllmEngineConfig:
    """Return the settings of a server that is launched with `arguments` and these environment variables."""
    usual = {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    return VllmEngineConfig(
        launch=True,
        command=str(VLLM),
        sync="file",
        start_seconds=800,
        arguments=("--distributed-executor-backend=uni", *arguments),
        variables={**usual, **variables},
    )
