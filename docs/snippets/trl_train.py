import argparse
from typing import Any

import torch
from datasets import Dataset  # pyright: ignore[reportMissingImports]
from trl import GRPOConfig, GRPOTrainer  # pyright: ignore[reportMissingImports]

from ludus.client import ServerAddress
from ludus.integrations.trl import LudusEnvironmentFactory, outcome_reward, rows
from ludus.integrations.trl_rollout import LudusRollout

parser = argparse.ArgumentParser()
parser.add_argument("--url", default="http://127.0.0.1:8000")
parser.add_argument("--environment", default="arithmetic")
parser.add_argument("--model", default="Qwen/Qwen3-1.7B")
parser.add_argument("--vllm", choices=["colocate", "server", "off"], default="colocate")
parser.add_argument("--place", choices=["rollout", "factory"], default="rollout")
parser.add_argument("--tasks", type=int, default=256)
parser.add_argument("--steps", type=int, default=200)
options = parser.parse_args()

server = ServerAddress(options.url)  # the token is read from LUDUS_TOKEN
config = GRPOConfig(
    output_dir="grpo-ludus",
    max_steps=options.steps,
    per_device_train_batch_size=8,
    gradient_accumulation_steps=4,
    num_generations=8,
    max_completion_length=2048,
    max_tool_calling_iterations=8,
    learning_rate=1e-6,
    bf16=torch.cuda.is_available(),
    use_vllm=options.vllm != "off",
    vllm_mode="server" if options.vllm == "server" else "colocate",
    vllm_gpu_memory_utilization=0.3,
    vllm_max_model_length=4096,
    gradient_checkpointing=True,
    chat_template_kwargs={"enable_thinking": False},
    log_completions=False,
    logging_steps=1,
    report_to="none",
    save_strategy="no",
)
place: dict[str, Any]
if options.place == "rollout":
    place = {"rollout_func": LudusRollout(max_turns=8)}
else:
    place = {"environment_factory": LudusEnvironmentFactory(server, options.environment, config.max_completion_length)}
trainer = GRPOTrainer(
    model=options.model,
    args=config,
    reward_funcs=[outcome_reward],
    train_dataset=Dataset.from_list(rows(server, options.environment, "train", n=options.tasks, seed=1)),
    **place,
)
trainer.train()
