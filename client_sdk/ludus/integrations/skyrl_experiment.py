"""The program that trains with SkyRL; see `ludus.integrations.skyrl`."""

from __future__ import annotations

import sys
from typing import Any

import ray  # pyright: ignore[reportMissingImports]
from skyrl.backends.skyrl_train.inference_servers.utils import (  # pyright: ignore[reportMissingImports]
    resolve_policy_model_name,
)
from skyrl.train.config import SkyRLTrainConfig  # pyright: ignore[reportMissingImports]
from skyrl.train.entrypoints.main_base import BasePPOExp  # pyright: ignore[reportMissingImports]
from skyrl.train.utils.utils import initialize_ray, validate_cfg  # pyright: ignore[reportMissingImports]

from ludus.integrations.skyrl import LudusGenerator


class LudusExperiment(BasePPOExp):  # type: ignore[misc]
    """SkyRL's experiment with `LudusGenerator`. Subclass it to change more, as SkyRL documents."""

    def get_generator(self, cfg: Any, tokenizer: Any, inference_engine_client: Any) -> LudusGenerator:
        """Return the generator."""
        return LudusGenerator(
            generator_cfg=cfg.generator,
            skyrl_gym_cfg=cfg.environment.skyrl_gym,
            inference_engine_client=inference_engine_client,
            tokenizer=tokenizer,
            policy_model_name=resolve_policy_model_name(cfg),
        )


def train(arguments: list[str]) -> None:
    """Train with SkyRL's settings, in a task of Ray as SkyRL's own program does."""
    config = SkyRLTrainConfig.from_cli_overrides(arguments)
    validate_cfg(config)
    initialize_ray(config)
    task: Any = ray.remote(num_cpus=1)(_run)
    ray.get(task.remote(config))


def _run(config: Any) -> None:
    LudusExperiment(config).run()


def main() -> None:
    """Train: SkyRL's `main_base` calls this with its own command line."""
    train([argument for argument in sys.argv[1:] if not argument.startswith("trainer.override_entrypoint=")])
