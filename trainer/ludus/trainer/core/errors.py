"""The errors that end a training run.

    TrainerError
    ├── ConfigError            the configuration cannot be used: unknown field, missing split, impossible combination
    ├── ModelError             a model or its tokenizer cannot be loaded
    ├── RolloutError           no usable episodes: every environment failed, or every group was constant
    │   └── DidNotLearn        every episode earned the same, so the run learned nothing
    ├── EngineError            the inference engine refused, died or took too long
    │   └── CanaryError        engine and learner give different probabilities to the same tokens
    ├── LearningError          the loss or the gradient is not finite
    ├── CheckpointError        a checkpoint cannot be written or read
    └── Interrupted            SIGTERM or Ctrl-C

A chat template that cannot be used raises `ludus.rendering.RenderingError`.
Each message says what happened, to which input, and what to do. `ludus train` prints it and exits with `exit_code`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class TrainerError(Exception):
    """Anything that ends a run on purpose."""

    exit_code: int = 1


class ConfigError(TrainerError):
    """The configuration cannot be used."""

    exit_code = 2


class ModelError(TrainerError):
    """A model or its tokenizer cannot be used."""


class RolloutError(TrainerError):
    """No episodes to learn from are available."""


class DidNotLearn(RolloutError):
    """Every episode earned the same, so the run learned nothing. The last line of the message says so."""


class EngineError(TrainerError):
    """The inference engine refused, died or took too long."""


class CanaryError(EngineError):
    """Engine and learner disagree about the probability of the same tokens."""


class LearningError(TrainerError):
    """An update cannot be made: a loss or gradient is not finite."""


class CheckpointError(TrainerError):
    """A checkpoint cannot be written or read."""


class Interrupted(TrainerError):
    """SIGTERM or Ctrl-C asked the run to stop; its exit code is 143 or 130.

    Args:
        message: what to print.
        number: the signal.
    """

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + number


@contextmanager
def unwrap_exception_group() -> Iterator[None]:
    """Raise only the first error of a task group."""
    try:
        yield
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from error.__cause__
