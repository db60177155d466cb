# SPDX-License-Identifier: Apache-2.0
"""Every key of Flow-Factory's YAML, of v0.6 and of its older forms (data.dataset_dir, train.learning_rate, reward)."""
from .settings import Table

LISTS = {"data.datasets", "optimizers", "rewards", "eval_rewards"}  # Their values are lists of sections.
WHOLE = {"acceleration"}

_REASONS = {
    "processes": "processes: learner.ranks and services.rollout_workers say how many; the batch does not depend on it",
    "logging": "TensorBoard, metrics.jsonl and report.html are always written; `oxbow-follow --to wandb` copies a run to W&B",
    "loading": "prompts are encoded once; see prompts.cache and `oxbow encode`",
    "memory": "rollout workers and the learner have memory of their own",
    "device": "a learner step is batch.groups x batch.group_size on any hardware",
    "media": "prompts are texts",
    "overlap": "rewards are always asked for while sampling goes on",
    "server": "the reward server's own business",
    "tries": "a server is asked again as long as timeout_seconds of its entry lasts",
    "seeds": "evaluation and windows take their noise from run.seed",
    "resume": "`oxbow train --resume` goes on with a run",
    "still": "no model that runs here takes a frame rate",
    "frozen": "frozen weights have the type of model.compute_dtype",
    "plain": "nothing is compiled or patched here",
    "one": "there is one source",
}

_REWARD = """
{0}[].{{name,reward_model,device,dtype,server_url,api_base_url,api_key,vlm_model}} text . !
{0}[].{{batch_size,max_concurrent,top_logprobs}} count . !
{0}[].timeout number . !
{0}[].canonicalize flag . !
{0}[].{{max_retries,retry_attempts}} any . - @tries
{0}[].applicable_datasets any . - @one
"""

_OLD = """
run_name log.run_name, data.dataset_dir data.datasets[0].dataset_dir,
data.max_dataset_size data.datasets[0].train.max_dataset_size, model.master_weight_dtype model.trainable_parameters_dtype,
train.save_freq log.save_freq, train.save_dir log.save_dir, train.learning_rate optimizers[0].learning_rate,
train.adam_weight_decay optimizers[0].weight_decay, train.adam_betas optimizers[0].betas,
train.adam_epsilon optimizers[0].eps, train.max_grad_norm optimizers[0].max_grad_norm,
scheduler.num_train_steps scheduler.num_sde_steps, scheduler.train_steps scheduler.sde_steps,
train.sde_type scheduler.dynamics_type, train.noise_level scheduler.noise_level,
train.num_noise_steps scheduler.num_sde_steps, train.noise_steps scheduler.sde_steps,
train.eval_args.resolution eval.resolution, train.eval_args.guidance_scale eval.guidance_scale,
train.eval_args.num_inference_steps eval.num_inference_steps, train.eval_args.eval_freq eval.eval_freq,
reward.reward_model rewards[0].reward_model, reward.batch_size rewards[0].batch_size, reward.device rewards[0].device,
reward.dtype rewards[0].dtype
"""

KEYS = Table("""
num_processes   count  1 !
mixed_precision text   bf16 = model.compute_dtype: no f32, bf16, fp16 bf16
{launcher,config_file,main_process_port,main_process_ip,machine_rank,num_machines} any . - @processes
{project,logging_backend} any . - @logging
acceleration any . - @plain

data.datasets[].dataset_dir     text   data !
data.datasets[].train           any    . !
data.datasets[].train.max_dataset_size count  . !
data.datasets[].eval            any    . !
data.datasets[].eval.resolution size   . !
data.datasets[].eval.{height,width} count  . !
data.datasets[].eval.guidance_scale number . !
data.datasets[].eval.{num_inference_steps,max_dataset_size} count  . !
data.datasets[].name any . - @one
data.datasets[].train.weight any . - @one
data.datasets[].eval.per_device_batch_size any . - @device
data.datasets[].eval.seed any . - @seeds
data.datasets[].{image_dir,video_dir,audio_dir} any . - @media
data.{image_dir,video_dir,audio_dir} any . - @media
data.{preprocessing_batch_size,dataloader_num_workers,enable_preprocess,force_reprocess,cache_dir,preprocess_parallelism} any . - @loading
data.{sampler_type,sampler_subgroup_size} any . - @device

model.finetune_type              text   full = model.trained: lora, full
model.lora_rank                  count  8 ? model.lora.rank
model.lora_alpha                 number . ? model.lora.alpha
model.target_modules             texts  all !
model.target_components          texts  transformer ~ transformer: the transformer alone is trained
model.model_name_or_path         text   black-forest-labs/FLUX.1-dev = model.path
model.model_type                 text   flux1 !
model.trainable_parameters_dtype text   bfloat16 !
model.resume_path                text   . ~ nothing: take it out, and set model.lora.path to its adapter in the run file
model.frozen_parameters_dtype any . - @frozen
model.frozen_parameters_dtype.* any . - @frozen
model.{resume_type,resume_training_state} any . - @resume
model.attn_backend any . - attention is LibTorch's own

log.run_name  text   . !
log.save_dir  text   . !
log.save_freq count  10 = checkpoint.every
log.{project,logging_backend,verbose} any . - @logging
log.save_model_only any . - a checkpoint always holds everything

train.trainer_type                text   grpo = method.name: grpo, grpo-guard, nft, awm
train.max_epochs                  number . !
train.seed                        count  42 = run.seed
train.resolution                  size   512 !
train.{height,width}              count  . !
train.num_frames                  count  . !
train.frame_rate                  number . ~ nothing: @still
train.per_device_batch_size       count  1 !
train.group_size                  count  1 = batch.group_size
train.unique_sample_num_per_epoch count  8 = batch.groups
train.gradient_step_per_epoch     count  2 ? batch.updates
train.gradient_accumulation_steps text   auto !
train.num_inner_epochs            count  1 = batch.passes
train.num_inference_steps         count  10 = sampling.steps
train.guidance_scale              number 3.5 !
train.guidance_scale_2            number . ~ nothing: is of Wan2.2, whose two transformers have no counterpart
train.latent_storage_dtype        text   fp16 ? sampling.storage: fp32 f32, fp16 f16, bf16
train.enable_gradient_checkpointing any    false !
train.enable_gradient_checkpointing.* any    . !
train.condition_image_size any . !
train.offload_samples_to_cpu any . - @memory
train.shuffle_samples any . - an image's arithmetic does not depend on its neighbours in a batch
train.{reward_optimization_overlap,reward_optimization_overlap_mode} any . - @overlap
train.reward_optimization_overlap_poll_interval any . - @overlap

train.global_std             flag   true !
train.advantage_aggregation  text   gdpo = method.reward_mix: sum, gdpo
train.clip_range             range  1e-4 !
train.adv_clip_range         range  5 !
train.kl_type                text   . !
train.kl_beta                number 0 !
train.kl_weight              text   Uniform !
train.nft_beta               number 1 ? method.nft.beta
train.awm_weighting          text   Uniform ? method.awm.weighting: Uniform uniform, t linear, t**2 square, huber, ghuber general_huber
train.ghuber_power           number 0.25 !
train.ema_kl_beta            number 0 ? method.old_kl_weight
train.off_policy             flag   false !
train.num_train_timesteps    count  0 ? method.times.count
train.time_sampling_strategy text   discrete ? method.times.sampler: discrete, discrete_with_init, discrete_wo_init discrete_without_init, uniform, logit_normal
train.time_shift             number 3 ? method.times.shift
train.timestep_range         range  0.9 !
train.ema_decay              number 0.995 ? method.old_policy.decay
train.ema_update_interval    count  10 !
train.ema_decay_schedule     text   power ? method.old_policy.shape: constant, power, linear, piecewise_linear, cosine, warmup_cosine
train.flat_steps             count  0 ? method.old_policy.flat
train.ramp_rate              number 0.001 ? method.old_policy.rate
train.warmup_steps           count  10 ? method.old_policy.warmup
train.{ref_param_device,ema_device} any . - @memory
train.critique_loss_weight any . - it counts only beside a section `critique`

optimizers[].learning_rate number 1e-5 = optimizer.learning_rate
optimizers[].weight_decay  number 1e-4 = optimizer.weight_decay
optimizers[].betas         range  0.9,0.999 !
optimizers[].eps           number 1e-8 = optimizer.epsilon
optimizers[].max_grad_norm number 1 = optimizer.grad_norm_max
optimizers[].name any . - there is one policy

scheduler.dynamics_type text   Flow-SDE ? sampling.dynamics: Flow-SDE flow_sde, Dance-SDE dance_sde, CPS cps, ODE ode
scheduler.noise_level   number 0.7 ? sampling.eta
scheduler.num_sde_steps count  1 !
scheduler.sde_steps     counts . !
scheduler.flow_shift    number . !
scheduler.seed any . - @seeds

eval.resolution          size   1024 !
eval.{height,width}      count  . !
eval.num_frames          count  . !
eval.frame_rate          number . ~ nothing: @still
eval.guidance_scale      number . !
eval.guidance_scale_2    number . ~ nothing: is of Wan2.2, whose two transformers have no counterpart
eval.num_inference_steps count  30 !
eval.eval_freq           count  10 = eval.every
eval.condition_image_size any . - held-out images are drawn from texts alone
eval.per_device_batch_size any . - @device
eval.seed any . - @seeds
train.eval_args.per_device_batch_size any . - @device
train.eval_args.seed any . - @seeds
""" + _REWARD.format("rewards") + """
rewards[].weight   number 1 !
rewards[].weight.* number . ~ nothing: a reward has one weight for all prompts
rewards[].*        any    . - @server
""" + _REWARD.format("eval_rewards") + """
eval_rewards[].weight number . - observed rewards have no weight
eval_rewards[].*      any    . - @server
reward.*              any    . - @server
""", _OLD, **_REASONS)
