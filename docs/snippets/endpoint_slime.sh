MEGATRON=… MODELS=… FILES=…            # folders: Megatron-LM, the models, and endpoint_slime.py with train.jsonl
source scripts/models/qwen3-1.7B.sh    # of slime: sets MODEL_ARGS
ray start --head --num-gpus 2

ray job submit --address=http://127.0.0.1:8265 \
    --runtime-env-json='{"env_vars": {"PYTHONPATH": "'"$MEGATRON:$FILES"'", "LUDUS_TOKEN": "…"}}' \
    -- python3 train.py \
    "${MODEL_ARGS[@]}" \
    --actor-num-nodes 1 \
    --actor-num-gpus-per-node 2 \
    --colocate \
    --hf-checkpoint "$MODELS/Qwen3-1.7B" \
    --ref-load "$MODELS/Qwen3-1.7B_torch_dist" \
    --prompt-data "$FILES/train.jsonl" \
    --input-key prompt \
    --metadata-key ludus \
    --custom-generate-function-path endpoint_slime.generate \
    --rollout-shuffle \
    --num-rollout 200 \
    --rollout-batch-size 32 \
    --n-samples-per-prompt 8 \
    --rollout-max-prompt-len 2048 \
    --rollout-max-response-len 4096 \
    --rollout-temperature 1 \
    --global-batch-size 256 \
    --advantage-estimator grpo \
    --eps-clip 0.2 \
    --eps-clip-high 0.28 \
    --optimizer adam \
    --lr 1e-6 \
    --lr-decay-style constant \
    --use-dynamic-batch-size \
    --max-tokens-per-gpu 9216 \
    --tensor-model-parallel-size 1 \
    --rollout-num-gpus-per-engine 1 \
    --sglang-mem-fraction-static 0.6
