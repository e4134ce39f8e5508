export LUDUS_TOKEN=…    # a trainer's token, on each node before Ray starts there
ludus export http://10.0.0.5:8000 wordle --split train --form openrlhf --out train.jsonl -n 4096
ludus export http://10.0.0.5:8000 wordle --split validation --form openrlhf --out validation.jsonl -n 128

python3 -m openrlhf.cli.train_ppo_ray \
    --train.agent_func_path openrlhf_agent.py \
    --data.prompt_dataset train.jsonl \
    --data.input_key input \
    --data.label_key label \
    --data.apply_chat_template \
    --data.max_len 6144 \
    --eval.dataset validation.jsonl \
    --eval.steps 10 \
    --actor.model_name_or_path Qwen/Qwen3-1.7B \
    --actor.num_nodes 1 \
    --actor.num_gpus_per_node 1 \
    --actor.adam.lr 1e-6 \
    --actor.gradient_checkpointing_enable \
    --algo.advantage.estimator rloo \
    --algo.advantage.is_correction_level token \
    --algo.kl.init_coef 0 \
    --rollout.batch_size 64 \
    --rollout.n_samples_per_prompt 8 \
    --rollout.micro_batch_size 4 \
    --rollout.max_new_tokens 1024 \
    --train.batch_size 512 \
    --train.micro_batch_size 4 \
    --train.max_epochs 1 \
    --train.colocate_all \
    --vllm.num_engines 1 \
    --vllm.tensor_parallel_size 1 \
    --vllm.gpu_memory_utilization 0.5 \
    --vllm.enable_sleep \
    --ds.enable_sleep \
    --ds.zero_stage 2 \
    --ckpt.output_dir checkpoints \
    --ckpt.save_steps 50
