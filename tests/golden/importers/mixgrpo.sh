#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# MixGRPO's scripts/finetune/finetune_flux_grpo_MixGRPO.sh, re-typed without what only starts machines.
hostfile="data/hosts/hostfile"
model_path="./data/flux"
unified_reward_url=None
experiment_name="0714_test"
reward_model="multi_reward" # "hpsv2", "clip_score"
seed=714
training_strategy="part" # "part", "all"
sampling_steps=25
eta=0.7
iters_per_group=25
group_size=4
sample_strategy="progressive"
prog_overlap_step=1
multi_reward_mix="advantage_aggr" # "reward_aggr", "advantage_aggr"
pick_score_weight=1.0
gradient_accumulation_steps=3
wandb_key=""
dpm_algorithm_type="null" # "null", "dpm-solver", "dpm-solver++"
nnodes_custom=4
nproc_per_node_custom=8
CHIEF_IP_custom=$(head -n 1 $hostfile)

pdsh -R ssh -w ^$hostfile "export WANDB_MODE=offline ;
        echo "nnodes_custom=$nnodes_custom" ;
        torchrun --nnodes $nnodes_custom --nproc_per_node $nproc_per_node_custom --node_rank \$INDEX_CUSTOME --master_addr $CHIEF_IP_custom \
            fastvideo/train_grpo_flux.py \
            --seed $seed \
            --pretrained_model_name_or_path $model_path \
            --data_json_path data/rl_embeddings/prompt.json \
            --gradient_checkpointing \
            --train_batch_size 1 \
            --gradient_accumulation_steps $gradient_accumulation_steps \
            --max_train_steps 300 \
            --learning_rate 1e-5 \
            --mixed_precision bf16 \
            --checkpointing_steps 50 \
            --cfg 0.0 \
            --output_dir data/outputs \
            --h 720 \
            --w 720 \
            --t 1 \
            --sampling_steps $sampling_steps \
            --eta $eta \
            --lr_warmup_steps 0 \
            --max_grad_norm 1.0 \
            --weight_decay 0.0001 \
            --num_generations 12 \
            --shift 3 \
            --use_group \
            --ignore_last \
            --init_same_noise \
            --training_strategy $training_strategy \
            --experiment_name $experiment_name \
            --kl_coeff 0.0 \
            --iters_per_group $iters_per_group \
            --group_size $group_size \
            --sample_strategy $sample_strategy \
            --prog_overlap \
            --prog_overlap_step $prog_overlap_step \
            --roll_back \
            --trimmed_ratio 0.0 \
            --reward_model $reward_model \
            --unified_reward_url $unified_reward_url \
            --multi_reward_mix $multi_reward_mix \
            --pick_score_weight $pick_score_weight \
            --dpm_algorithm_type $dpm_algorithm_type \
            --frozen_init_timesteps -1 \
            --wandb_key $wandb_key \
            --flow_grpo_sampling "
