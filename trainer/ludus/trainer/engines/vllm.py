"""The vLLM engine: sends and receives token ids over HTTP, with one or several servers."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import aiohttp
import torch

from ludus.gateway.completions import weight_versions
from ludus.trainer.core.config import LoraConfig, VllmEngineConfig
from ludus.trainer.core.errors import ConfigError, EngineError
from ludus.trainer.engines.base import Generation, Sampling, WeightUpdate
from ludus.trainer.engines.clock import PlayClock
from ludus.trainer.engines.vllm_process import VllmProcess
from ludus.trainer.engines.vllm_server import VllmServer, VllmServers, free_port, together
from ludus.trainer.engines.vllm_weights import FileTransfer, LoraAdapters, NcclSender, NcclTransfer

WORKER: Final = "ludus.trainer.engines.vllm_worker"
BACKENDS: Final = {"nccl": "nccl", "file": "ludus_file"}
"""Ways to send weights → vLLM's names for them."""
_LORA_RANKS: Final = (8, 16, 32, 64, 128, 256, 320, 512)  # the ranks that vLLM accepts
_MINUS_INFINITY: Final = -9999.0  # what vLLM writes for -inf
T = TypeVar("T")
Weights = FileTransfer | NcclTransfer | LoraAdapters


@dataclass(slots=True, eq=False)
class Replica:
    """One copy of the weights: a server, or one of its data-parallel ranks."""

    server: VllmServer
    name: str
    """The name in messages."""
    headers: dict[str, str]
    """The HTTP headers that send a request to this copy."""
    sessions: int = 0


class VllmEngine:
    """An engine that samples on vLLM servers; see `ludus.trainer.engines.base.Engine`.

    An episode stays on one replica, whose prefix cache then holds its history. Cached prefixes are salted with the
    version of the weights, so that none is used after an update. After a failed update the engine cannot be used.
    """

    def __init__(
        self,
        config: VllmEngineConfig,
        http: aiohttp.ClientSession,
        servers: VllmServers,
        replicas: Sequence[Replica],
        *,
        weights: Weights,
        context: int,
    ) -> None:
        self._config = config
        self._http = http
        self._servers = servers
        self.replicas = tuple(replicas)
        self._weights = weights
        self.context = context
        self.version = -1
        self.clock = PlayClock()
        self._homes: dict[str, Replica] = {}
        self._updating = asyncio.Lock()
        self._calls: set[asyncio.Future[Any]] = set()
        self._failure: str | None = None

    @classmethod
    async def open(
        cls,
        config: VllmEngineConfig,
        *,
        model: str,
        dtype: str,
        context: int,
        folder: Path,
        device: torch.device | None = None,
        lora: LoraConfig | None = None,
        frozen: int = 0,
    ) -> Self:
        """Find or launch the servers, check that they can be used for training, and connect the weight transfer.

        Args:
            config: the table `engine.vllm`.
            model: the model for a launched server; running servers must serve the same one.
            dtype: `float32` or `bfloat16`; running servers must compute in it.
            context: the maximum number of tokens of a request.
            folder: the folder for the log of a launched server, and for weights when `config.folder` is not set.
            device: the learner's device, for NCCL.
            lora: the adapter, for `sync = "lora"`.
            frozen: the most frozen adapters that are served at once, for a launched server.

        Raises:
            ConfigError: a server cannot be used; the message names each flag and variable that it lacks.
            EngineError: a server cannot be reached, or died while starting.
        """
        if bool(config.urls) == config.launch:
            raise ConfigError("engine.vllm: give either urls of running servers, or launch = true")
        if config.sync == "lora" and lora is None:
            raise ConfigError("engine.vllm.sync = 'lora' sends adapters, but model.lora is not set")
        lora, device = lora or LoraConfig(), device or torch.device("cpu")
        http = aiohttp.ClientSession(
            # Close idle connections before vLLM does (after 5 s), because that would break a request being sent.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=2),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
        )
        servers = VllmServers([VllmServer(url, http) for url in config.urls], config.sync_seconds)
        weights: Weights | None = None
        try:
            if config.launch:
                launched = await launch(config, http, model, dtype, context, folder, lora, device, frozen)
                servers = VllmServers([launched], config.sync_seconds)
            await together(server.wait_ready(config.start_seconds) for server in servers)
            replicas = await together(inspect(server, config, dtype, context, lora) for server in servers)
            match config.sync:
                case "lora":
                    weights = LoraAdapters(servers)
                case "file":
                    weights = FileTransfer(servers, config.folder or folder / "weights")
                case "nccl":
                    weights = NcclTransfer(servers, NcclSender(device), config.master_address)
            await weights.open()
        except BaseException:
            await _close(weights, servers, http)
            raise
        return cls(config, http, servers, list(chain(*replicas)), weights=weights, context=context)

    async def generate(self, ids: Sequence[int], sampling: Sampling, *, seed: int, session: str) -> Generation:
        """See `Engine.generate`."""
        async with self._adapter() as adapter:
            return await self._generate(ids, sampling, seed, session, adapter)

    async def frozen(self, folder: Path) -> FrozenAdapter:
        """Return an engine that samples with the adapter in a folder, on the same servers; for `sync = "lora"`.

        Raises:
            EngineError: a server refused the adapter.
        """
        assert isinstance(self._weights, LoraAdapters)
        self._check()
        return FrozenAdapter(self, self._weights, await self._weights.load_frozen(folder))

    async def _generate(
        self, ids: Sequence[int], sampling: Sampling, seed: int, session: str, adapter: str | None
    ) -> Generation:
        parameters = {
            # Every parameter that a model's own generation_config could change is set explicitly.
            **{"temperature": sampling.temperature, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "n": 1},
            **{"presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0, "min_tokens": 0},
            **{"max_tokens": sampling.max_tokens, "stop_token_ids": list(sampling.stop), "ignore_eos": True},
            **{"seed": seed % 2**63, "logprobs": 0, "detokenize": False},
        }
        version = self.version
        if session not in self._homes:
            self._homes[session] = min(self.replicas, key=lambda replica: replica.sessions)
            self._homes[session].sessions += 1
        answer = await self._ask(self._homes[session], ids, parameters, adapter)
        (choice,) = answer["choices"]
        if choice["finish_reason"] not in ("stop", "length"):
            raise EngineError(f"vLLM ended a generation of version {version} with {choice['finish_reason']!r}")
        sampled = tuple(choice["token_ids"])
        logprobs = tuple(_finite(entry["logprob"]) for entry in choice["logprobs"]["content"])
        versions = _versions(choice, len(sampled)) if adapter is None else (version,) * len(sampled)
        if len(logprobs) != len(sampled):
            raise EngineError(f"vLLM gave {len(logprobs)} log-probabilities for {len(sampled)} tokens")
        return Generation(sampled, logprobs, versions, choice["finish_reason"])

    async def logprobs(self, ids: Sequence[int]) -> dict[str, list[float]]:
        """See `Engine.logprobs`. Each replica is a copy of the weights."""
        async with self._adapter() as adapter:
            answers = await together(self._logprobs(replica, ids, adapter) for replica in self.replicas)
        return {replica.name: answer for replica, answer in zip(self.replicas, answers, strict=True)}

    async def update_weights(self, update: WeightUpdate) -> None:
        """See `Engine.update_weights`. With LoRA adapters, open requests finish with the old adapter."""
        async with self._updating:
            self._check()
            try:
                with self.clock.paused():
                    async with asyncio.timeout(self._config.sync_seconds):
                        await self._send(update)
            except TimeoutError:
                seconds = f"{self._config.sync_seconds:g} s (engine.vllm.sync_seconds)"
                self._fail(f"the update to version {update.version} did not end within {seconds}")
                raise EngineError(f"vLLM: {self._failure}") from None
            except BaseException as error:
                self._fail(f"the update to version {update.version} failed: {error or type(error).__name__}")
                raise
            self.version = update.version

    async def forget(self, session: str) -> None:
        """See `Engine.forget`. vLLM itself evicts the least recently used cache."""
        if home := self._homes.pop(session, None):
            home.sessions -= 1

    async def aclose(self) -> None:
        """End all requests, disconnect from the servers, and stop the server that was launched here."""
        if self._http.closed:
            return
        self._fail(self._failure or "the engine was closed")
        await asyncio.gather(*self._calls, return_exceptions=True)
        await _close(self._weights, self._servers, self._http)

    async def _send(self, update: WeightUpdate) -> None:
        if isinstance(self._weights, LoraAdapters):
            await self._weights.send(update)
            return
        await self._servers.post(f"/pause?mode=keep&clear_cache={str(self._config.clear_cache).lower()}")
        await self._weights.send(update)
        await self._servers.post("/resume")

    async def _ask(
        self, replica: Replica, ids: Sequence[int], parameters: Mapping[str, Any], adapter: str | None
    ) -> dict[str, Any]:
        self._check()
        body = {
            "token_ids": list(ids),
            "sampling_params": parameters,
            "cache_salt": f"v{self.version}",
            **({"model": adapter} if adapter else {}),
        }
        posting = replica.server.post(
            "/inference/v1/generate",
            body,
            seconds=self._config.request_seconds,
            headers=replica.headers,
            attempts=2,
            limit=self.clock.limit,
        )
        answer: dict[str, Any] = await self._until_failure(posting)
        return answer

    async def _logprobs(self, replica: Replica, ids: Sequence[int], adapter: str | None) -> list[float]:
        parameters = {"max_tokens": 1, "temperature": 1.0, "prompt_logprobs": 0, "ignore_eos": True}
        answer = await self._ask(replica, ids, {**parameters, "detokenize": False}, adapter)
        after_first = zip(ids[1:], answer["prompt_logprobs"][1:], strict=True)
        return [_finite(entry[str(token)]["logprob"]) for token, entry in after_first]

    @asynccontextmanager
    async def _adapter(self) -> AsyncIterator[str | None]:
        """Yield the name of the adapter to sample with, and keep it loaded during the body; None for no adapter."""
        if not isinstance(self._weights, LoraAdapters) or (name := self._weights.current) is None:
            yield None
            return
        self._weights.running[name] += 1
        try:
            yield name
        finally:
            self._weights.running[name] -= 1

    async def _until_failure(self, awaitable: Awaitable[T]) -> T:
        """Return the result, or raise EngineError as soon as the engine fails: servers left paused never answer."""
        call = asyncio.ensure_future(awaitable)
        self._calls.add(call)
        try:
            return await call
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise EngineError(f"vLLM: {self._failure}") from None
        finally:
            self._calls.discard(call)

    def _check(self) -> None:
        if self._failure is not None:
            raise EngineError(f"vLLM cannot be used any more: {self._failure}")

    def _fail(self, cause: str) -> None:
        self._failure = cause
        for call in self._calls:
            call.cancel()


@dataclass(frozen=True, slots=True)
class FrozenAdapter:
    """An engine that samples with one LoRA adapter, which never changes."""

    engine: VllmEngine
    adapters: LoraAdapters
    name: str

    @property
    def context(self) -> int:
        """See `Engine`."""
        return self.engine.context

    async def generate(self, ids: Sequence[int], sampling: Sampling, *, seed: int, session: str) -> Generation:
        """See `Engine.generate`."""
        return await self.engine._generate(ids, sampling, seed, session, self.name)

    async def forget(self, session: str) -> None:
        """See `Engine.forget`."""
        await self.engine.forget(session)

    async def aclose(self) -> None:
        """Unload the adapter."""
        with suppress(EngineError):
            await self.adapters.unload_frozen(self.name)


async def launch(
    config: VllmEngineConfig,
    http: aiohttp.ClientSession,
    model: str,
    dtype: str,
    context: int,
    folder: Path,
    lora: LoraConfig,
    device: torch.device,
    frozen: int = 0,
) -> VllmServer:
    """Start `vllm serve` with the flags that training needs. `config.arguments` come last and take precedence.

    Raises:
        ConfigError: the program `config.command` does not exist.
    """
    port = config.port or free_port()
    arguments = ["--host=127.0.0.1", f"--port={port}", f"--dtype={dtype}", f"--max-model-len={context}"]
    arguments += ["--enable-scale-out", "--logprobs-mode=processed_logprobs", "--generation-config=vllm"]
    variables = {"VLLM_SERVER_DEV_MODE": "1"}
    if device.type == "cpu":
        # On a CPU, a chunked prompt of a request with a seed crashes the engine: "CPU Generator does not use offset"
        # (vLLM 0.32, gpu_model_runner._bookkeeping_sync).
        arguments.append("--no-enable-chunked-prefill")
    if config.sync == "lora":
        rank = next((rank for rank in _LORA_RANKS if rank >= lora.rank), _LORA_RANKS[-1])
        arguments += ["--enable-lora", f"--max-lora-rank={rank}"]
        arguments += [f"--max-loras={2 + frozen}", f"--max-cpu-loras={8 + frozen}"]
        arguments += ["--lora-target-modules", *lora.targets]
        variables["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "1"
    else:
        arguments.append(f"--weight-transfer-config={json.dumps({'backend': BACKENDS[config.sync]})}")
    if config.sync == "file":
        arguments.append(f"--worker-extension-cls={WORKER}.WorkerExtension")
        variables["PYTHONPATH"] = str(lay_out_worker(folder / "vllm_path"))
    command = [config.command, "serve", model, *arguments, *config.arguments]
    process = await VllmProcess.start(command, {**variables, **config.variables}, folder / "vllm.log")
    return VllmServer(f"http://127.0.0.1:{port}", http, process)


def lay_out_worker(root: Path) -> Path:
    """Copy only the worker's module to `root`, for the PYTHONPATH of a vLLM whose environment lacks Ludus.

    The folder of our own installation would not do, because it would also bring its torch.
    """
    target = root / Path(*WORKER.split(".")).with_suffix(".py")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(Path(__file__).with_name("vllm_worker.py"), target)
    return root.absolute()


async def inspect(
    server: VllmServer, config: VllmEngineConfig, dtype: str, context: int, lora: LoraConfig
) -> list[Replica]:
    """Check that a server can be used for training, and return its replicas.

    Raises:
        ConfigError: training with the server would fail, or would give wrong results without an error.
        EngineError: the server does not answer.
    """
    seconds = config.start_seconds
    lacks = []
    if not await server.has("/inference/v1/generate", seconds=seconds):
        lacks.append("--enable-scale-out (needs vLLM 0.30), for token ids both ways")
    if not await server.has("/pause", seconds=seconds):
        lacks.append("the variable VLLM_SERVER_DEV_MODE=1, for weight updates")
    if config.sync == "lora" and not await server.has("/v1/load_lora_adapter", seconds=seconds):
        lacks.append("the variable VLLM_ALLOW_RUNTIME_LORA_UPDATING=1, for new adapters")
    if lacks:
        raise ConfigError(_refusal(server, lacks))
    answer = await server.get("/server_info?config_format=json", seconds=seconds)
    facts = answer["vllm_config"]
    model, parallel, adapters = facts["model_config"], facts["parallel_config"], facts["lora_config"]
    if model["logprobs_mode"] != "processed_logprobs":
        lacks.append(f"--logprobs-mode=processed_logprobs (it has {model['logprobs_mode']})")
    if str(model["dtype"]).removeprefix("torch.") != dtype:
        lacks.append(f"--dtype={dtype}, as model.dtype says (it has {model['dtype']})")
    if model["max_model_len"] < context:
        lacks.append(f"--max-model-len={context}, as rollouts.context says (it has {model['max_model_len']})")
    if adapters and "lm_head" in (adapters["target_modules"] or ["lm_head"]):
        targets = " ".join(lora.targets)
        lacks.append(f"--lora-target-modules {targets} (prompt log-probabilities with an adapted lm_head kill vLLM)")
    if config.sync == "lora":
        if not adapters or adapters["max_lora_rank"] < lora.rank:
            lacks.append(f"--enable-lora --max-lora-rank={lora.rank} (or more)")
    elif (found := (facts["weight_transfer_config"] or {}).get("backend")) != BACKENDS[config.sync]:
        extension = f" and --worker-extension-cls={WORKER}.WorkerExtension" if config.sync == "file" else ""
        wanted = json.dumps({"backend": BACKENDS[config.sync]})
        lacks.append(f"--weight-transfer-config='{wanted}'{extension} (it has {found})")
    if lacks:
        raise ConfigError(_refusal(server, lacks))
    if parallel.get("data_parallel_external_lb") or parallel["data_parallel_size"] == 1:
        return [Replica(server, server.url, {})]
    ranks = map(str, range(parallel["data_parallel_size"]))
    return [Replica(server, f"{server.url} (rank {rank})", {"X-data-parallel-rank": rank}) for rank in ranks]


def _refusal(server: VllmServer, lacks: Sequence[str]) -> str:
    return f"the vLLM server at {server.url} cannot be trained with; start it with\n  " + "\n  ".join(lacks)


async def _close(weights: Weights | None, servers: VllmServers, http: aiohttp.ClientSession) -> None:
    """Unload adapters, close connections, and stop the processes that this run started."""
    try:
        if weights is not None:
            with suppress(EngineError):
                await weights.aclose()
    finally:
        await http.close()
        await servers.stop()


def _versions(choice: Mapping[str, Any], length: int) -> tuple[int, ...]:
    spans = choice.get("weight_versions")
    if spans is None:
        raise EngineError("vLLM did not say which weights sampled the tokens (weight_versions): it is too old")
    return weight_versions(spans, length, -1)  # "default", before the first update


def _finite(logprob: float) -> float:
    return logprob if logprob > _MINUS_INFINITY else float("-inf")
