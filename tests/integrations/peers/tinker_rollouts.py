"""Play groups with tinker-cookbook's own rollouts, some in spawned processes, and report what it would train on."""

import asyncio
import functools
import json
import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import time
import warnings
from concurrent.futures import ProcessPoolExecutor

import tinker
from tinker_cookbook.completers import TokenCompleter, TokensWithLogprobs
from tinker_cookbook.exceptions import AllTrajectoriesFailedError
from tinker_cookbook.rl.data_processing import assemble_training_data, compute_advantages, trajectory_to_data
from tinker_cookbook.rl.rollout_strategy import MinViableGroup, RetryOnFailure
from tinker_cookbook.rl.rollouts import do_group_rollout

import ludus.client.addresses as addresses
from ludus.integrations.tinker import LudusDatasetBuilder
from ludus.integrations.unscored import UNSCORED

warnings.simplefilter("ignore")
addresses.connect = functools.partial(addresses.connect, reconnect_seconds=1.0)


class Scripted(TokenCompleter):
    """Samples what `SumPolicy` says, for the conversation whose tokens come before; the cookbook names no episode.

    Args:
        kill: the process to kill before the 14th sample.
        fails: the numbers of the samples, from 1, that raise an error.
        most: how many tokens a message may have.
    """

    def __init__(self, folder: str, kill: int | None = None, fails: tuple[int, ...] = (), most: int = 1000) -> None:
        from byte_chat import SumPolicy
        from tinker_cookbook.tokenizer_utils import get_tokenizer

        self.policy = SumPolicy(get_tokenizer(folder))
        self.kill, self.fails, self.most, self.calls = kill, fails, most, 0
        self.playing: dict[tuple[int, ...], list[str]] = {}

    async def __call__(self, model_input, stop, *, max_tokens=None) -> TokensWithLogprobs:
        from byte_chat import LOGPROB

        assert stop == [self.policy.tokenizer.eos_token_id]
        self.calls += 1
        if self.calls in self.fails:
            raise ConnectionError("the sampler failed")
        if self.kill and self.calls == 14:
            os.kill(self.kill, signal.SIGKILL)
        ids = model_input.to_ints()
        waiting = self.playing.get(tuple(ids), [])
        request = waiting.pop() if waiting else f"request-{len(self.policy.requests)}"
        said = self.policy.sample(request, ids)
        most = min(self.most, max_tokens or self.most)
        cut = said[:most]
        answered = tuple(ids + cut)
        self.begun = getattr(self, "begun", [])
        self.begun.append((request, answered))
        return TokensWithLogprobs(
            tokens=cut,
            maybe_logprobs=[LOGPROB] * len(cut),
            stop_reason="length" if len(cut) < len(said) else "stop",
            sequence_id=f"{request}/{self.calls}",
        )
