import asyncio
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from chat_models import HERMES, QWEN3, chatml
from token_play import ADD, ScriptedEngine, conversation, output, played, said
from worlds import Playground

from ludus.client import connect, run_episode
from ludus.gateway.token_policy import SUMMARY, SUMMARY_REQUEST, TokenPolicy
from ludus.protocol.actions import Call
from ludus.protocol.content import Message, text_of
from ludus.protocol.items import CallItem, Item, MalformedCall, text_message
from ludus.rendering import Renderer
from ludus.rendering.encoding import text_encoder
from ludus.trainer.core.config import RolloutConfig
from ludus.trainer.core.errors import EngineError
from ludus.trainer.engines.base import Generation, Sampling

TASK: list[Item] = [text_message("user", "Add the numbers.")]
CALL = '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'
END = "<|im_end|>"


def make(turns: Sequence[list[int]], tokenizer: Any = None, **config: Any) -> tuple[TokenPolicy, ScriptedEngine]:
    engine = ScriptedEngine(turns)
    values: dict[str, Any] = {"max_tokens": 60, **config}
    policy = TokenPolicy(
        engine, Renderer(tokenizer or chatml()), RolloutConfig(**values), session="e.1", seed=3
    )  # fmt: skip
    return policy, engine


def turn(text: str, end: str | None = END) -> list[int]:
    return said(chatml(), text, end)


async def test_parallel_calls_and_all_their_outputs_are_one_exchange() -> None:
    policy, engine = make([turn(f"{CALL}\n{CALL}"), turn("Done.")])
    items, turns = await played(policy, TASK, 2)
    assert [len(taken.calls) for taken in turns] == [2, 0]
    [sample] = policy.samples
    assert engine.requests[1].prompt[: len(engine.requests[0].prompt)] == engine.requests[0].prompt
    assert chatml().decode(sample.ids).count("<tool_response>\nAnswer 1.\n</tool_response>") == 2
    assert [sample.turns.count(number) for number in (0, 1)] == [len(turn(f"{CALL}\n{CALL}")), len(turn("Done."))]


async def test_a_call_that_cannot_be_read_is_a_malformed_call_and_counted_once_a_turn() -> None:
    policy, _ = make([turn(f"<tool_call>oops</tool_call>{CALL}<tool_call>oops</tool_call>"), turn("Done.")])
    _, turns = await played(policy, TASK, 2)
    assert [type(item.call) for item in turns[0].calls] == [MalformedCall, Call, MalformedCall]
    assert policy.parse_errors == 1


async def test_a_turn_that_reaches_max_tokens_is_a_final_message_or_a_call_that_cannot_be_read() -> None:
    policy, _ = make([turn("<tool_call>" + "x" * 200), turn("word " * 200), turn("short")])
    _, [call, message, short] = await played(policy, TASK, 3)
    assert isinstance(call.calls[0].call, MalformedCall)
    assert message.calls == ()
    assert message.text.startswith("word word")
    assert short.text == "short"
    assert (policy.parse_errors, policy.cut) == (1, False)


async def test_a_whole_call_in_a_turn_that_was_cut_is_made() -> None:
    policy, _ = make([turn(CALL + " word" * 200)])
    _, [taken] = await played(policy, TASK, 1)
    assert [item.call for item in taken.calls] == [Call("add", {"a": 1})]
    assert (policy.parse_errors, policy.cut) == (0, True)


async def test_calls_keep_the_names_the_harness_gave_them() -> None:
    template = HERMES.replace(
        "<tool_response>\n{{", "<tool_response>\n{{ message.name }} {{ message.tool_call_id }} {{"
    )
    policy, engine = make([turn(CALL), turn("Done.")], chatml(template))
    first = await policy(conversation(TASK, 1))
    renamed = CallItem("mine", first.calls[0].call)
    await policy(conversation([*TASK, renamed, output("mine", "1")], 2))
    assert "add mine 1" in chatml().decode(engine.requests[1].prompt)


async def test_each_request_has_a_seed_of_its_own_that_the_episodes_seed_decides() -> None:
    seeds = []
    for seed in (3, 3, 4):
        engine = ScriptedEngine([turn(CALL)] * 3)
        policy = TokenPolicy(engine, Renderer(chatml()), RolloutConfig(), session="s", seed=seed)
        await played(policy, TASK, 3)
        seeds.append([request.seed for request in engine.requests])
    assert seeds[0] == seeds[1]
    assert len({*seeds[0], *seeds[2]}) == 6
    assert all(0 <= seed < 2**63 for seed in seeds[0])


async def test_the_engine_learns_what_to_sample_and_when_the_episode_has_ended() -> None:
    engine = ScriptedEngine([turn("Done.")])
    renderer = Renderer(chatml())
    policy = TokenPolicy(engine, renderer, RolloutConfig(max_tokens=7), session="e.1", seed=3, temperature=0.0)
    _, [taken] = await played(policy, TASK, 1)
    [request] = engine.requests
    assert request.sampling == Sampling(max_tokens=7, stop=renderer.stop, temperature=0.0)
    assert request.session == "e.1"
    assert taken.usage is not None
    assert (taken.usage.input_tokens, taken.usage.output_tokens) == (len(request.prompt), len(turn("Done.")))
    await policy.aclose()
    assert engine.forgotten == ["e.1"]


async def test_a_full_context_stops_the_episode_and_what_was_sampled_is_kept() -> None:
    prompt = len(Renderer(chatml()).prompt(TASK, [ADD]))
    policy, engine = make([turn(CALL)] * 9, context=prompt + 110)
    _, turns = await played(policy, TASK, 9)
    assert turns[-1].stopped == "context_limit"
    [sample] = policy.samples
    assert len(sample.ids) <= prompt + 110
    assert sample.sampled == engine.sampled


async def test_the_engines_own_context_counts_too() -> None:
    policy, engine = make([turn("word " * 50)])
    engine.context = len(Renderer(chatml()).prompt(TASK, [ADD])) + 5
    policy = TokenPolicy(engine, Renderer(chatml()), RolloutConfig(), session="s", seed=0)
    _, [taken] = await played(policy, TASK, 1)
    assert taken.stopped == "context_limit"
    assert engine.requests[0].sampling.max_tokens == 5


async def test_a_prompt_without_any_room_is_not_sent() -> None:
    policy, engine = make([turn("Done.")], context=5)
    _, [taken] = await played(policy, TASK, 1)
    assert (taken.stopped, engine.requests, policy.samples) == ("context_limit", [], ())


async def test_dropped_turns_leave_the_task_and_the_newest_turns() -> None:
    prompt = len(Renderer(chatml()).prompt(TASK, [ADD]))
    policy, engine = make([turn(CALL)] * 12, context=prompt + 260, context_overflow="truncate_oldest")
    _, turns = await played(policy, TASK, 12)
    assert all(taken.stopped is None for taken in turns)
    assert len(policy.samples) > 1
    last = chatml().decode(engine.requests[-1].prompt)
    assert "Add the numbers." in last
    assert "Answer 11." in last
    assert "Answer 1." not in last
    assert all(60 <= prompt + 260 - len(request.prompt) for request in engine.requests), "room for a whole turn"
    assert len(policy.samples) < 6, "room for several turns is made at once"


async def test_turns_that_the_template_rewrote_are_kept_as_it_wrote_them() -> None:
    tokenizer = chatml(QWEN3)
    renderer = Renderer(tokenizer)
    thought = "<think>\nHm.\n</think>\n\n"
    texts = [CALL, thought + CALL, thought + "Well.", CALL, CALL]
    turns = [said(tokenizer, text, END) for text in texts]
    whole, engine = make(turns, tokenizer)
    await played(whole, TASK, 5)
    assert len(whole.samples) == 2, "thoughts were dropped once"
    policy, engine = make(
        turns, tokenizer, context=len(engine.requests[4].prompt) + 59, context_overflow="truncate_oldest"
    )
    items, _ = await played(policy, TASK, 5)
    # Two of four exchanges stay: the one whose thoughts are gone, and the one that was sampled after that.
    well = next(n for n, item in enumerate(items) if isinstance(item, Message) and text_of(item.content) == "Well.")
    written = renderer.text(renderer.messages([*TASK, *items[well : well + 4]]), [ADD])
    assert tokenizer.decode(engine.requests[4].prompt) == written.replace(
        '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>', CALL
    )


async def test_one_observation_that_is_too_long_to_keep_stops_the_episode() -> None:
    prompt = len(Renderer(chatml()).prompt(TASK, [ADD]))
    for context_overflow in ("truncate_oldest", "summarize"):
        policy, _ = make([turn(CALL)] * 5, context=prompt + 400, context_overflow=context_overflow)
        _, turns = await played(policy, TASK, 5, lambda number: "long " * (5 if number < 3 else 400))
        assert turns[-1].stopped == "context_limit"


class SummingUp(ScriptedEngine):
    """Says something else when a summary is asked for."""

    async def generate(self, ids: Sequence[int], sampling: Sampling, *, seed: int, session: str) -> Generation:
        if SUMMARY_REQUEST in chatml().decode(ids):
            self._turns = itertools.chain([turn(f"I found {len(self.requests)}.")], self._turns)
        return await super().generate(ids, sampling, seed=seed, session=session)


@pytest.mark.parametrize("template", [HERMES, QWEN3])
async def test_a_summary_is_sampled_and_learned_and_stands_below_the_task(template: str) -> None:
    tokenizer = chatml(template)
    renderer = Renderer(tokenizer)
    engine = SummingUp([turn(CALL)] * 9)
    config = RolloutConfig(max_tokens=60, context=len(renderer.prompt(TASK, [ADD])) + 400, context_overflow="summarize")
    policy = TokenPolicy(engine, renderer, config, session="s", seed=0)
    _, turns = await played(policy, TASK, 9)
    assert all(taken.stopped is None for taken in turns)
    asked = next(n for n, r in enumerate(engine.requests) if SUMMARY_REQUEST in tokenizer.decode(r.prompt))
    request, following = engine.requests[asked], tokenizer.decode(engine.requests[asked + 1].prompt)
    assert f"Add the numbers.\n\n{SUMMARY}I found {asked}.<|im_end|>" in following
    assert following.count("\nAnswer") == 1, "the newest exchange stays"
    assert CALL in following
    seen = (*request.prompt, *request.generation.ids)
    [sample] = [sample for sample in policy.samples if sample.ids == seen]
    assert sample.turns[len(request.prompt) :] == (asked,) * len(request.generation.ids), "of the turn that lacked room"
    assert sum(sample.sampled for sample in policy.samples) == engine.sampled
    usage = turns[asked].usage
    assert usage is not None
    assert usage.requests == 2


async def test_a_second_summary_takes_the_place_of_the_first() -> None:
    prompt = len(Renderer(chatml()).prompt(TASK, [ADD]))
    policy, engine = make([turn(CALL)] * 60, context=prompt + 400, context_overflow="summarize")
    await played(policy, TASK, 20)
    texts = [chatml().decode(request.prompt) for request in engine.requests]
    assert sum(SUMMARY_REQUEST in text for text in texts) >= 2
    assert all(text.count(SUMMARY) <= 1 for text in texts)


class FailingEngine(ScriptedEngine):
    async def generate(self, ids: Sequence[int], sampling: Sampling, *, seed: int, session: str) -> Generation:
        if len(self.requests) == 1:
            raise EngineError("gone")
        return await super().generate(ids, sampling, seed=seed, session=session)


async def test_a_request_that_fails_leaves_nothing_in_the_samples() -> None:
    engine = FailingEngine([turn(CALL)] * 2)
    policy = TokenPolicy(engine, Renderer(chatml()), RolloutConfig(), session="s", seed=0)
    with pytest.raises(EngineError):
        await played(policy, TASK, 2)
    [sample] = policy.samples
    assert sample.ids == (*engine.requests[0].prompt, *turn(CALL))


async def test_a_long_episode_encodes_each_token_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = chatml()
    encoded: list[int] = []

    def counting(tokenizer: Any) -> Callable[[str], list[int]]:
        encode = text_encoder(tokenizer)

        def counted(text: str) -> list[int]:
            encoded.append(len(text))
            return encode(text)

        return counted

    monkeypatch.setattr("ludus.rendering.renderer.text_encoder", counting)
    renderer = Renderer(tokenizer)
    engine = ScriptedEngine([turn(CALL)] * 40)
    policy = TokenPolicy(engine, renderer, RolloutConfig(context=100_000), session="s", seed=0)
    await played(policy, TASK, 40)
    assert len(encoded) == 40
    assert sum(encoded) < 2 * len(tokenizer.decode(policy.samples[0].ids))


async def test_an_episode_of_a_real_environment_ends_with_its_tokens_recorded(serve: Any) -> None:
    server = await serve(Playground)
    call = '<tool_call>{"name": "add", "arguments": {"amount": 1}}</tool_call>'
    async with connect(server.url) as client:
        environment = client.environment("playground")
        episode = await environment.start(split="train", index=0)
        engine = ScriptedEngine([turn(call), turn("<tool_call>oops</tool_call>"), turn(call * 2), *[turn("Done.")] * 5])
        policy = TokenPolicy(engine, Renderer(chatml()), RolloutConfig(), session="s", seed=0)
        trajectory = await asyncio.wait_for(run_episode(episode, policy), 20)
    assert trajectory.failure is None
    assert policy.parse_errors == 1
    assert "not valid JSON" in chatml().decode(engine.requests[-1].prompt)
    assert sum(sample.sampled for sample in policy.samples) == engine.sampled
