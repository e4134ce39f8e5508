export LUDUS_TOKEN=…    # a trainer's token, on each node before Ray starts there
ludus export http://10.0.0.5:8000 wordle --split train --form skyrl --out train.parquet -n 4096
ludus export http://10.0.0.5:8000 wordle --split validation --form skyrl --out validation.parquet -n 128

python3 -m skyrl.train.entrypoints.main_base \
    trainer.override_entrypoint=ludus.integrations.skyrl_experiment \
    data.train_data="['train.parquet']" \
    data.val_data="['validation.parquet']" \
    trainer.policy.model.path=Qwen/Qwen3-1.7B \
    trainer.strategy=fsdp \
    trainer.placement.colocate_all=true \
    trainer.placement.policy_num_gpus_per_node=1 \
    trainer.placement.ref_num_gpus_per_node=1 \
    trainer.algorithm.advantage_estimator=grpo \
    trainer.algorithm.use_kl_loss=false \
    trainer.algorithm.grpo_norm_by_std=false \
    trainer.epochs=1 \
    trainer.train_batch_size=64 \
    trainer.policy_mini_batch_size=32 \
    trainer.micro_forward_batch_size_per_gpu=8 \
    trainer.micro_train_batch_size_per_gpu=4 \
    trainer.policy.optimizer_config.lr=1e-6 \
    trainer.max_prompt_length=2048 \
    trainer.eval_interval=10 \
    trainer.ckpt_interval=50 \
    trainer.logger=console \
    generator.n_samples_per_prompt=8 \
    generator.max_turns=8 \
    generator.max_input_length=5120 \
    generator.sampling_params.max_generate_length=1024 \
    generator.sampling_params.logprobs=1 \
    generator.chat_template_kwargs.enable_thinking=false \
    generator.inference_engine.backend=vllm \
    generator.inference_engine.num_engines=1 \
    generator.inference_engine.tensor_parallel_size=1 \
    generator.inference_engine.gpu_memory_utilization=0.6
