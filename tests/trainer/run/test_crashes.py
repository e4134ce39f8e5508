"""Runs as processes: signals, kill -9, ranks."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from run_processes import Launch, finish, steps_of, until
from toys import Even, Serve, groups_of, metrics_of, run_config

pytestmark = pytest.mark.timeout(300)

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]


@pytest.mark.suite("training")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
async def test_a_signal_saves_and_the_same_command_goes_on(
    serve: Serve, tiny: Path, tmp_path: Path, launch: Launch, number: signal.Signals, code: int
) -> None:
    server = await serve(Even)
    config = run_config(tmp_path / "run", tiny, server.url, steps=10_000, checkpoints={"every": 0})
    child = await launch(config)
    await until(lambda: steps_of(config.output) >= 3, child)
    child.send_signal(number)
    found, output = await finish(child)
    done = steps_of(config.output)
    assert found == code, output
    assert f"stopped by {number.name}" in output
    assert f"step {done} is saved" in output
    assert "Traceback" not in output
    assert [path.name for path in (config.output / "checkpoints").iterdir()] == [f"step-{done:08d}"]
    found, output = await finish(await launch(config.model_copy(update={"steps": done + 2})))
    assert found == 0, output
    assert [line["step"] for line in metrics_of(config.output)] == list(range(1, done + 3))


@pytest.mark.suite("training")
async def test_ctrl_c_under_torchrun_reaches_every_rank_and_saves_all_the_same(
    serve: Serve, tiny: Path, tmp_path: Path, launch: Launch
) -> None:
    server = await serve(Even)
    config = run_config(tmp_path / "run", tiny, server.url, steps=10_000, checkpoints={"every": 0})
    child = await launch(config, *TORCHRUN)
    await until(lambda: steps_of(config.output) >= 2, child)
    os.killpg(child.pid, signal.SIGINT)  # as a terminal does
    _, output = await finish(child)
    done = steps_of(config.output)
    assert f"step {done} is saved" in output, output
    assert [path.name for path in (config.output / "checkpoints").iterdir()] == [f"step-{done:08d}"]


@pytest.mark.suite("training")
async def test_after_kill_9_nothing_is_trained_twice(serve: Serve, tiny: Path, tmp_path: Path, launch: Launch) -> None:
    server = await serve(Even)
    config = run_config(tmp_path / "run", tiny, server.url, steps=10_000, rollouts={"staleness": 1})
    child = await launch(config)
    await until(lambda: steps_of(config.output) >= 5, child)
    child.send_signal(signal.SIGKILL)
    await child.wait()
    saved = max(int(path.name[-8:]) for path in (config.output / "checkpoints").glob("step-*"))
    assert saved >= 4
    code, output = await finish(await launch(config.model_copy(update={"steps": saved + 3})))
    assert code == 0, output
    groups = groups_of(config.output)
    assert [line["step"] for line in metrics_of(config.output)] == sorted(groups) == list(range(1, saved + 4))
    assert sum(map(len, groups.values())) == len(set().union(*groups.values()))


@pytest.mark.suite("training")
async def test_two_ranks_train_as_one_does(serve: Serve, tiny: Path, tmp_path: Path, launch: Launch) -> None:
    server = await serve(Even)
    one, two = (run_config(tmp_path / name, tiny, server.url, steps=3) for name in ("one", "two"))
    for config, prefix in ((one, []), (two, TORCHRUN)):
        code, output = await finish(await launch(config, *prefix))
        assert code == 0, output
    for a, b in zip(metrics_of(one.output), metrics_of(two.output), strict=True):
        assert a["loss/total"] == pytest.approx(b["loss/total"], abs=1e-6)
        assert a["loss/gradient_norm"] == pytest.approx(b["loss/gradient_norm"], rel=1e-4)
        assert a["reward/mean"] == b["reward/mean"]


@pytest.mark.suite("training")
async def test_a_mistake_is_one_sentence_and_exit_code_2(tiny: Path, tmp_path: Path, launch: Launch) -> None:
    code, output = await finish(await launch(run_config(tmp_path / "run", tiny, "http://127.0.0.1:9")))
    assert code == 2
    assert "Traceback" not in output
    assert "http://127.0.0.1:9 cannot be used" in output
