import asyncio

from tinker_cookbook.rl.rollout_strategy import RetryOnFailure  # pyright: ignore[reportMissingImports]
from tinker_cookbook.rl.train import Config, main  # pyright: ignore[reportMissingImports]

from ludus.integrations.tinker import LudusDatasetBuilder

MODEL = "Qwen/Qwen3-8B"

config = Config(
    model_name=MODEL,
    dataset_builder=LudusDatasetBuilder(
        url="http://10.0.0.5:8000",
        environment="wordle",
        model_name=MODEL,
        split="train",
        n=4096,
        test_split="validation",
        test_n=128,
        batch_size=32,
        group_size=8,
        epochs=1,
        run="wordle-1",
        tool_calls="hermes",
        max_turns=8,
        max_trajectory_tokens=8192,
        template_options={"enable_thinking": False},
    ),
    recipe_name="ludus",
    log_path="~/tinker/wordle-1",
    max_tokens=1024,
    temperature=1.0,
    learning_rate=4e-5,
    lora_rank=32,
    loss_fn="importance_sampling",
    eval_every=20,
    save_every=20,
    rollout_error_tolerance=RetryOnFailure(max_retries=3),
)

if __name__ == "__main__":
    asyncio.run(main(config))
