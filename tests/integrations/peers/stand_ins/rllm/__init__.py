"""The part of rLLM 0.3 that its agent flows use, written after its public sources because it is on no package index."""

import inspect

from rllm.types import Episode


class _Flow:
    def __init__(self, function, name):
        assert inspect.iscoroutinefunction(function)
        self.function, self.name = function, name

    async def arun(self, task, config):
        return await self.function(task, config)


class _Evaluator:
    def __init__(self, function):
        self.function = function

    def evaluate(self, task, episode):
        return self.function(task, episode)


def rollout(*, name):
    """Make an agent flow of a function."""
    return lambda function: _Flow(function, name)


def evaluator(function):
    """Make an evaluator of a function."""
    return _Evaluator(function)


async def run_task(flow, score, task, config, attempts=3):
    """Run a flow and its evaluator as rLLM's engine does with `raise_on_error=False`.

    An attempt that raises is made again; after the last one, the episode has no trajectories, so no group holds it.
    """
    for _ in range(attempts):
        try:
            episode = await flow.arun(task, config)
            assert isinstance(episode, Episode)
            output = score.evaluate(task, episode)
            for trajectory in episode.trajectories:
                if trajectory.reward is None:
                    trajectory.reward = output.reward
            episode.is_correct = output.is_correct
            return episode
        except Exception as error:
            failure = error
    return Episode(metadata={"error": {"message": str(failure)}})
