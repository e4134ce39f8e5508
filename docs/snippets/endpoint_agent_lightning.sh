export AGL_KEY=dev-key
agl-server port=8181 key=$AGL_KEY default_proxy.model_name=Qwen/Qwen3-1.7B &
agl-controller runner_type=local agl_server.url=http://localhost:8181 agl_server.key=$AGL_KEY &
ray start --head

python endpoint_agent_lightning.py \
    agentlightning.agl_base_url=http://localhost:8181 \
    agentlightning.agl_key=$AGL_KEY \
    agentlightning.local.agent_class=endpoint_agent_lightning.LudusAgent \
    agentlightning.local.env_map.LUDUS_TASK=input.ludus \
    agentlightning.rollout_timeout_seconds=600 \
    agentlightning.trace_aggregator.level=trajectory \
    algorithm.adv_estimator=grpo \
    data.train_batch_size=32 \
    data.max_prompt_length=2048 \
    data.max_response_length=4096 \
    actor_rollout_ref.model.path=Qwen/Qwen3-1.7B \
    actor_rollout_ref.rollout.name=vllm \
    actor_rollout_ref.rollout.n=8 \
    actor_rollout_ref.rollout.multi_turn.format=hermes \
    actor_rollout_ref.rollout.tensor_model_parallel_size=1 \
    actor_rollout_ref.rollout.gpu_memory_utilization=0.5 \
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=1 \
    actor_rollout_ref.actor.optim.lr=1e-6 \
    actor_rollout_ref.actor.ppo_mini_batch_size=32 \
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1 \
    trainer.n_gpus_per_node=1 \
    trainer.nnodes=1 \
    trainer.total_epochs=1
