"""The real W&B, MLflow and trackio, each without a network, in an environment of their own."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PYTHON = ROOT / ".peers" / "trackers" / "bin" / "python"

pytestmark = [
    pytest.mark.skipif(not PYTHON.exists(), reason="the peer 'trackers' is not installed: scripts/peers.py trackers"),
    pytest.mark.timeout(600),
]


@pytest.mark.suite("training")
@pytest.mark.parametrize("tracker", ["wandb", "trackio", "mlflow"])
async def test_the_real_tracker_keeps_what_it_is_given(tracker: str, tmp_path: Path) -> None:
    folders = (str(ROOT / name) for name in ("protocol", "client_sdk", "trainer"))
    child = await asyncio.create_subprocess_exec(
        *(str(PYTHON), "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", f"--rootdir={tmp_path}"),
        *("-c", os.devnull, "--import-mode=importlib", f"--confcutdir={Path(__file__).parent}", "-k", tracker),
        str(Path(__file__).with_name("test_trackers.py")),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders), "HOME": str(tmp_path)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await child.communicate()
    words = output.decode()
    assert child.returncode == 0, words
    assert "1 passed" in words, words
    assert "skipped" not in words, words
