"""Run the agent of the docs with AReaL's own proxy workflow, proxy server and client, in a spawned process.

The engine behind them is scripted. SGLang and vLLM, whose parsers AReaL uses for tool calls, are not installed: the
calls are read by Ludus instead.
"""

import asyncio
import functools
import json
import multiprocessing
import os
import re
import signal
import socket
import sys
import tempfile
import warnings


class Engine:
    """Answers as AReaL's engines do: adds with the tool, then submits; right for even sums only."""

    def __init__(self, tokenizer) -> None:
        self.tokenizer, self.calls, self.kill = tokenizer, 0, None
        self.requests = []
        """The prompts and the sampled ids of all requests."""

    async def agenerate(self, request):
        from areal.api.io_struct import ModelResponse
        from byte_chat import LOGPROB, call, question

        self.calls += 1
        if self.kill and self.calls == 6:
            os.kill(self.kill, signal.SIGKILL)
        text = self.tokenizer.decode(request.input_ids)
        a, b = question(text)
        said = call("add", a=a, b=b) if "<tool_response>" not in text else call("submit", number=a + b + (a + b) % 2)
        ids = [*self.tokenizer.encode(said, add_special_tokens=False), self.tokenizer.eos_token_id]
        self.requests.append((list(request.input_ids), ids))
        return ModelResponse(
            input_tokens=list(request.input_ids),
            output_tokens=ids,
            output_logprobs=[LOGPROB] * len(ids),
            output_versions=[0] * len(ids),
            stop_reason="stop",
            tokenizer=self.tokenizer,
        )


def parse_calls(text, tools, parser, reasoning, reason, use_responses=False, tokenizer=None):
    """Read the calls of sampled text, as AReaL's parsers return them."""
    from openai.types.chat import ChatCompletionMessageFunctionToolCall

    calls = []
    for number, found in enumerate(re.findall(r"<tool_call>\s*(.*?)\s*</tool_call>", text, re.DOTALL)):
        value = json.loads(found)
        function = {"name": value["name"], "arguments": json.dumps(value["arguments"])}
        calls.append(ChatCompletionMessageFunctionToolCall(id=f"call_{number}", type="function", function=function))
    return calls or None, "" if calls else text, "tool_calls" if calls else reason


async def play(given: dict) -> dict:
    import areal.experimental.openai.client as areal_client
    import areal.experimental.openai.proxy.proxy_rollout_server as proxy
    import uvicorn
    from areal.experimental.openai.proxy.workflow import OpenAIProxyWorkflow
    from byte_chat import byte_tokenizer
    from endpoint_areal import LudusAgent

    from ludus.client import ServerAddress
    from ludus.integrations.unscored import UNSCORED

    areal_client.process_tool_calls = parse_calls
    engine = Engine(byte_tokenizer())
    # What the proxy's `/create_engine` and `/call` do, with an engine that no configuration can name.
    proxy._engine = engine
    proxy._openai_client = areal_client.ArealOpenAI(
        engine=engine, tokenizer=engine.tokenizer, chat_template_type="concat", api_key="none"
    )
    proxy._admin_api_key = "admin"
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(proxy.app, log_level="warning"))
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    workflow = OpenAIProxyWorkflow(
        mode="inline",
        agent=LudusAgent(),
        proxy_addr=f"http://127.0.0.1:{listening.getsockname()[1]}",
        admin_api_key="admin",
        export_style="concat",
    )

    async def run(address) -> dict:
        try:
            exported = await workflow.arun_episode(None, {"ludus": address.to_json()})
        except Exception as error:  # AReaL's executor rejects the trajectory
            return {"task": address.task, "rejected": type(error).__name__}
        (leaf,) = exported.values()  # every call extends the one before it, so there is one conversation
        tensors = leaf.to_tensor_dict()
        ids, mask = tensors["input_ids"][0].tolist(), tensors["loss_mask"][0].tolist()
        last = next(one for one in reversed(engine.requests) if one[0] + one[1] == ids)
        return {
            "task": address.task,
            "reward": leaf.reward,
            "same_length": len(ids) == len(mask) == tensors["logprobs"].shape[1],
            "learned": sum(mask),
            "last": len(last[1]),
        }

    reports = {}
    for name, one in given["runs"].items():
        engine.calls, engine.kill = 0, one.get("kill")
        before = UNSCORED["areal"]
        tasks = [ServerAddress(one["url"]).task(one["environment"], "train", f"sum-{at}") for at in range(one["n"])]
        rows = [await run(task) for task in tasks] if one.get("serial") else await asyncio.gather(*map(run, tasks))
        reports[name] = {
            "rows": list(rows),
            "counted": UNSCORED["areal"] - before,
        }
    server.should_exit = True
    await serving
    return reports


def work(given: dict, pipe) -> None:
    warnings.simplefilter("ignore")
    sys.path.insert(0, given["snippets"])
    import ludus.client.addresses as addresses

    addresses.connect = functools.partial(addresses.connect, reconnect_seconds=1.0)
    pipe.send(asyncio.run(play(given)))


def main() -> None:
    given = json.loads(sys.argv[1])
    os.environ |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "HOME": tempfile.mkdtemp(), "HF_HUB_OFFLINE": "1"}
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=work, args=(given, theirs))
    process.start()
    theirs.close()
    reports = ours.recv()
    process.join()
    print(json.dumps(reports))


if __name__ == "__main__":
    main()
