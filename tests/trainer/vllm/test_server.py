from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from ludus.trainer.core.config import VllmEngineConfig
from ludus.trainer.core.errors import ConfigError, EngineError
from ludus.trainer.engines.vllm import VllmEngine, lay_out_worker


async def launch(folder: Path, program: str, **settings: Any) -> VllmEngine:
    command = folder / "fake_vllm"
    command.write_text(f"#!/bin/sh\n{program}\n")
    command.chmod(0o755)
    config = VllmEngineConfig(launch=True, command=str(command), sync="file", start_seconds=10, **settings)
    return await VllmEngine.open(config, model="some/model", dtype="float32", context=99, folder=folder)


async def test_a_program_that_is_not_there_is_a_matter_of_the_configuration(tmp_path: Path) -> None:
    config = VllmEngineConfig(launch=True, command="no-such-vllm", sync="file")
    with pytest.raises(ConfigError, match="no-such-vllm"):
        await VllmEngine.open(config, model="m", dtype="float32", context=99, folder=tmp_path)


@pytest.mark.parametrize("settings", [{}, {"launch": True, "urls": ("http://127.0.0.1:1",)}])
async def test_servers_are_either_launched_or_found(settings: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="either"):
        await VllmEngine.open(VllmEngineConfig(**settings), model="m", dtype="float32", context=99, folder=tmp_path)


async def test_a_server_that_dies_at_the_start_is_reported_with_the_error_it_wrote(tmp_path: Path) -> None:
    program = """
    echo '(EngineCore pid=7) ERROR 01-01 [core.py:1] ValueError: not enough memory for the cache' >&2
    echo 'RuntimeError: Engine core initialization failed. See root cause above.'
    for line in 1 2 3 4 5 6 7 8; do echo "line $line"; done
    exit 3"""
    with pytest.raises(EngineError) as died:
        await launch(tmp_path, program)
    words = str(died.value)
    assert "exited with 3" in words
    assert "ValueError: not enough memory" in words
    assert "line 8" in words
    assert "line 1\n" not in words
    assert str(tmp_path / "vllm.log") in words


async def test_a_killed_server_is_reported_by_its_signal(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="killed by SIGKILL"):
        await launch(tmp_path, "kill -9 $$")


async def test_a_server_that_is_never_ready_is_given_up_and_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = VllmEngineConfig(launch=True, command="sh", sync="file", start_seconds=2)
    folder = tmp_path / "run"
    (tmp_path / "serve").write_text(f"echo $$ > {tmp_path}/pid; echo waiting; exec sleep 100")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EngineError, match=r"2 s .*start_seconds[\s\S]*waiting"):
        await VllmEngine.open(config, model="m", dtype="float32", context=99, folder=folder)
    assert not exists(int((tmp_path / "pid").read_text()))


async def test_a_launched_server_gets_what_training_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("MASTER_PORT", "1")
    program = f'printf "%s\\n" "$@" > {tmp_path}/said; env > {tmp_path}/variables; exit 1'
    with pytest.raises(EngineError):
        await launch(tmp_path, program, arguments=("--mine",), variables={"HELLO": "1"}, port=7)
    said = (tmp_path / "said").read_text().split("\n")
    assert said[:2] == ["serve", "some/model"]
    assert said[-2] == "--mine"
    assert {"--enable-scale-out", "--logprobs-mode=processed_logprobs", "--port=7", "--max-model-len=99"} <= set(said)
    variables = (tmp_path / "variables").read_text().splitlines()
    assert {"VLLM_SERVER_DEV_MODE=1", "HELLO=1"} <= set(variables)
    assert not {"RANK=3", "MASTER_PORT=1"} & set(variables)


def test_only_the_workers_module_goes_on_vllms_path(tmp_path: Path) -> None:
    root = lay_out_worker(tmp_path)
    files = [path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()]
    assert files == ["ludus/trainer/engines/vllm_worker.py"]


async def test_a_launched_server_ends_with_the_trainer_even_if_that_is_killed(tmp_path: Path) -> None:
    connected: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    listener = await asyncio.start_server(lambda reader, writer: connected.put_nowait((reader, writer)), "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    (tmp_path / "vllm.py").write_text(f"import socket; socket.create_connection(('127.0.0.1', {port})).recv(1)")
    trainer = f"""
import asyncio, pathlib, sys
from ludus.trainer.engines.vllm_process import VllmProcess
async def main():
    command = [sys.executable, {str(tmp_path / "vllm.py")!r}]
    process = await VllmProcess.start(command, {{}}, pathlib.Path({str(tmp_path / "log")!r}))
    await asyncio.Event().wait()
asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", trainer)
    async with listener, asyncio.timeout(30):
        reader, writer = await connected.get()
        process.send_signal(signal.SIGKILL)
        await process.wait()
        assert await reader.read() == b""  # the server's end is closed: it is gone
        writer.close()


def exists(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
