"""Play episodes with verifiers' train client, which renders prompts to tokens: prime-rl's path, with a mock of vLLM.

The tokenizer is made here: bytes, and the special tokens of Qwen3. The mock answers `/inference/v1/generate` with token
ids and log-probabilities of a thought and a tool call. Given `plugins`, `url`, `n`, and `toml`, a configuration of
prime-rl whose environment is resolved.
"""

import asyncio
import json
import re
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

GIVEN = json.loads(sys.argv[1])
sys.path.insert(0, GIVEN["plugins"])
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
ADDED = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"]
LOGPROB = -0.25


def make_tokenizer(folder: str) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE(vocab={letter: at for at, letter in enumerate(alphabet)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|im_end|>")
    made.add_special_tokens({"additional_special_tokens": SPECIAL})
    made.add_tokens(ADDED)
    made.save_pretrained(folder)
    return made


async def serve(tokenizer: Any, sampled: list[int]) -> str:
    """Serve the mock in this loop, count the tokens that it samples, and return its address."""
    from aiohttp import web

    async def generate(request: web.Request) -> web.Response:
        prompt = tokenizer.decode((await request.json())["token_ids"], skip_special_tokens=False)
        found = re.search(r"What is (\d+) \+ (\d+)", prompt)
        assert found is not None, prompt
        a, b = int(found[1]), int(found[2])
        first = "<tool_response>" not in prompt
        name, arguments = ("add", {"a": a, "b": b}) if first else ("submit", {"number": a + b})
        call = json.dumps({"name": name, "arguments": arguments})
        text = f"<think>\nI use {name}.\n</think>\n\n<tool_call>\n{call}\n</tool_call><|im_end|>"
        ids = tokenizer.encode(text, add_special_tokens=False)
        sampled.append(len(ids))
        content = [{"token": f"token_id:{each}", "logprob": LOGPROB} for each in ids]
        choice = {"index": 0, "token_ids": ids, "logprobs": {"content": content}, "finish_reason": "stop"}
        return web.json_response({"request_id": "x", "choices": [choice]})

    async def models(request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "m", "object": "model", "max_model_len": 8192}]})

    app = web.Application()
    app.router.add_post("/inference/v1/generate", generate)
    app.router.add_get("/v1/models", models)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return f"http://127.0.0.1:{runner.addresses[0][1]}/v1"


async def main() -> None:
    from verifiers.v1.cli.eval.runner import run_eval
    from verifiers.v1.configs.cli.eval import EvalConfig
    from verifiers.v1.utils.loaders import resolve_env_config

    with tempfile.TemporaryDirectory() as folder:
        sampled: list[int] = []
        base_url = await serve(make_tokenizer(f"{folder}/tokenizer"), sampled)
        config = EvalConfig.model_validate(
            {
                "env": {"taskset": {"id": "ludus_sums", "url": GIVEN["url"], "environment": "sums"}},
                "model": "m",
                "client": {
                    "type": "train",
                    "base_url": base_url,
                    "api_key_var": "NO_KEY",
                    "renderer": {"name": "qwen3"},
                    "renderer_model_name": str(Path(folder, "tokenizer")),
                },
                "select": {"limit": GIVEN["n"]},
                "push": False,
                "rich": None,
                "output_dir": f"{folder}/out",
            }
        )
        episodes = await run_eval(config)
    rows = []
    for trace in (trace for episode in episodes for trace in episode.traces):
        branches = [(branch.token_ids, branch.sampled_mask, branch.logprobs) for branch in trace.branches]
        ids, mask, logprobs = branches[-1] if branches else ([], [], [])
        rows.append(
            {
                "ok": trace.ok,
                "reward": trace.reward,
                "errors": [error.message for error in trace.errors],
                "branches": len(branches),
                "lengths": [len(ids), len(mask), len(logprobs)],
                "sampled": sum(mask),
                "right": [logprob == LOGPROB * flag for logprob, flag in zip(logprobs, mask, strict=True)].count(True),
            }
        )
    (source,) = tomllib.loads(GIVEN["toml"])["orchestrator"]["train"]["source"]
    resolved = resolve_env_config(source["env"]).model_dump(mode="json", exclude_none=True)
    print(json.dumps({"traces": rows, "sampled": sum(sampled), "resolved": resolved}))


asyncio.run(main())
