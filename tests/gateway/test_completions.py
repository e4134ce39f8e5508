"""The engine behind a completions endpoint: what it asks for, what it takes, and what it refuses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiohttp import web

from ludus.gateway.completions import CompletionsEngine
from ludus.protocol import errors as e
from ludus.rendering.samples import Generation, Sampling

SAMPLING = Sampling(max_tokens=8, stop=(2,), temperature=0.5)
Answer = tuple[int, Any, dict[str, str]]
Make = Callable[..., CompletionsEngine]


class Server:
    """An endpoint that answers with what a test put into `answers`, the last one again and again."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.asked: list[Any] = []
        self.url = ""

    async def complete(self, request: web.Request) -> web.Response:
        self.asked.append(await request.json())
        status, value, headers = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(value, str):
            return web.Response(text=value, status=status, headers=headers)
        return web.json_response(value, status=status, headers=headers)

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "m", "max_model_len": 77}, {"id": "short"}]})


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    app = web.Application()
    app.router.add_post("/v1/completions", server.complete)
    app.router.add_get("/v1/models", server.models)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    yield server
    await runner.cleanup()


@pytest.fixture
async def make(server: Server) -> AsyncIterator[Make]:
    async with AsyncExitStack() as stack:

        def made(**options: Any) -> CompletionsEngine:
            values: dict[str, Any] = {"model": "m", "context": 100, **options}
            engine = CompletionsEngine(values.pop("model"), server.url, **values)
            stack.push_async_callback(engine.aclose)
            return engine

        yield made


def choice(**changes: Any) -> dict[str, Any]:
    """A completion of the tokens 5 and 2."""
    one = {"finish_reason": "stop", "token_ids": [5, 2], "logprobs": {"token_logprobs": [-0.5, -1.5]}, **changes}
    return {"choices": [one]}


async def sampled(engine: CompletionsEngine) -> Generation:
    return await engine.generate([7, 8], SAMPLING, seed=3, session="s")


async def test_tokens_come_back_as_they_were_sampled_and_every_parameter_is_set(server: Server, make: Make) -> None:
    server.answers = [(200, choice(prompt_token_ids=[7, 8]), {})]
    assert await sampled(make(parameters={"top_p": 0.9})) == Generation((5, 2), (-0.5, -1.5), (-1, -1), "stop")
    (asked,) = server.asked
    assert asked["prompt"] == [7, 8]
    expected = {
        "model": "m", "max_tokens": 8, "temperature": 0.5, "stop_token_ids": [2], "seed": 3, "top_p": 0.9, "top_k": 0,
        "min_p": 0.0, "repetition_penalty": 1.0, "logprobs": 0, "return_token_ids": True, "ignore_eos": True,
    }  # fmt: skip
    assert {name: asked[name] for name in expected} == expected


async def test_the_version_is_that_of_each_token_or_of_the_reply_or_of_the_caller(server: Server, make: Make) -> None:
    spans = [{"version": "default", "start": 0, "end": 1}, {"version": "4", "start": 1, "end": 2}]
    header = {"x-ludus-policy-version": "9"}
    server.answers = [(200, choice(weight_versions=spans), {}), (200, choice(), header), (200, choice(), {})]
    engine = make(version=3)
    assert [(await sampled(engine)).versions for _ in range(3)] == [(3, 4), (9, 9), (3, 3)]


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (choice(token_ids=None), e.Unsupported, "returns no token ids"),
        (choice(logprobs=None), e.Unsupported, "without a finite log-probability"),
        (choice(logprobs={"token_logprobs": [-0.5]}), e.Unsupported, "without a finite log-probability"),
        (choice(logprobs={"token_logprobs": [-0.5, None]}), e.Unsupported, "without a finite log-probability"),
        (choice(prompt_token_ids=[7]), e.Unsupported, "changed the token ids"),
        (choice(token_ids=[5, 6]), e.ProtocolViolation, "none of those that end a turn"),
        (choice(finish_reason="abort"), e.InfrastructureFailed, "'abort'"),
        (choice(token_ids=[], logprobs={"token_logprobs": []}), e.ProtocolViolation, "no completion"),
        ({"choices": []}, e.ProtocolViolation, "no completion"),
        ([], e.ProtocolViolation, "no completion"),
        ("<html>", e.ProtocolViolation, "not JSON"),
    ],
)
async def test_an_answer_that_is_not_exact_is_an_error_and_never_a_sample(
    answer: Any, error: type[Exception], message: str, server: Server, make: Make
) -> None:
    server.answers = [(200, answer, {})]
    with pytest.raises(error, match=message):
        await sampled(make())


@pytest.mark.parametrize(
    ("status", "error", "requests"),
    [(401, e.Unauthenticated, 1), (404, e.NotFound, 1), (400, e.InvalidParams, 1), (503, e.InfrastructureFailed, 3)],
)
async def test_only_errors_that_may_pass_are_tried_again(
    status: int, error: type[Exception], requests: int, server: Server, make: Make
) -> None:
    server.answers = [(status, {"error": "no"}, {"Retry-After": "0"})]
    with pytest.raises(error, match=f"answered {status}"):
        await sampled(make(attempts=3))
    assert len(server.asked) == requests
    server.answers = [(503, "busy", {"Retry-After": "0"}), (200, choice(), {})]
    assert (await sampled(make())).ids == (5, 2)


async def test_the_context_is_what_the_endpoint_says(server: Server, make: Make) -> None:
    engine = make(context=None)
    await engine.open()
    assert engine.context == 77
    with pytest.raises(e.InvalidParams, match="has no model 'other'"):
        await make(context=None, model="other").open()
    with pytest.raises(e.InvalidParams, match="give `context`"):
        await make(context=None, model="short").open()


async def test_an_endpoint_that_is_not_there_or_does_not_answer_is_a_typed_error(make: Make) -> None:
    gone = CompletionsEngine("m", "http://127.0.0.1:9/v1", context=10, attempts=1)
    with pytest.raises(e.ConnectionFailed, match="is it running"):
        await sampled(gone)
    await gone.aclose()
