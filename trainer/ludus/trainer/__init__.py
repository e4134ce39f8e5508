"""The reference GRPO trainer. Episodes run on Ludus servers; the engines (torch, vLLM) take and return token ids.

`train.py` contains the run and reads from top to bottom. The `ludus train` command is in `commands.py`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from ludus.common.distribution import missing_extra

if TYPE_CHECKING:
    from ludus.trainer.core.config import TrainConfig
    from ludus.trainer.core.errors import TrainerError
    from ludus.trainer.core.settings import read_config
    from ludus.trainer.train import run

__all__ = ["TrainConfig", "TrainerError", "read_config", "run"]

# Names are imported on first use (PEP 562), so that a configuration can be read and checked without torch.
_HOMES: Final = {
    "TrainConfig": "ludus.trainer.core.config",
    "TrainerError": "ludus.trainer.core.errors",
    "read_config": "ludus.trainer.core.settings",
    "run": "ludus.trainer.train",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(importlib.import_module(home), name)
    except ModuleNotFoundError as error:
        raise missing_extra(error, "trainer") from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
