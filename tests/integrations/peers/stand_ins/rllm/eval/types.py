"""Types of rLLM 0.3 for results."""

from dataclasses import dataclass, field


@dataclass
class EvalOutput:
    """The result of an evaluator."""

    reward: float
    is_correct: bool
    signals: list = field(default_factory=list)
    metadata: dict = field(default_factory=dict)
