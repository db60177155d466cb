// SPDX-License-Identifier: Apache-2.0
#include "config/import/flow_factory_keys.h"

#include <iterator>

#include "absl/strings/match.h"

namespace oxbow::config {
namespace {

using enum ForeignType;
using enum ForeignUse;

constexpr char kProcesses[] =
    "processes: services.rollout_workers, learner.ranks and a launcher say how many; the batch "
    "does not depend on it";
constexpr char kLogging[] = "TensorBoard, metrics.jsonl and report.html are always written";
constexpr char kLoading[] = "prompts are encoded once; see prompts.cache and `oxbow encode`";
constexpr char kMemory[] = "rollout workers and the learner have memory of their own";
constexpr char kPerDevice[] = "a learner step is batch.groups x batch.group_size on any hardware";
constexpr char kMedia[] = "prompts are texts";
constexpr char kOverlap[] = "rewards are always asked for while sampling goes on";
constexpr char kServer[] = "the reward server's own business";
constexpr char kTries[] = "a server is asked again as long as timeout_seconds of its entry lasts";
constexpr char kSeeds[] = "evaluation and windows take their noise from run.seed";

constexpr ForeignKey kTable[] = {
    {"launcher", kText, nullptr, kNeedless, kProcesses},
    {"config_file", kText, nullptr, kNeedless, kProcesses},
    {"num_processes", kCount, "1", kJudged},
    {"main_process_port", kCount, nullptr, kNeedless, kProcesses},
    {"main_process_ip", kText, nullptr, kNeedless, kProcesses},
    {"machine_rank", kCount, nullptr, kNeedless, kProcesses},
    {"num_machines", kCount, nullptr, kNeedless, kProcesses},
    {"mixed_precision", kText, "bf16", kJudged},
    {"run_name", kText, nullptr, kOldName, "log.run_name"},
    {"project", kText, nullptr, kNeedless, kLogging},
    {"logging_backend", kText, nullptr, kNeedless, kLogging},
    {"acceleration.*", kAny, nullptr, kNeedless, "nothing is compiled or patched here"},
    {"acceleration", kAny, nullptr, kNeedless, "nothing is compiled or patched here"},

    {"data.datasets[].name", kText, nullptr, kNeedless, "there is one source"},
    {"data.datasets[].dataset_dir", kText, "data", kJudged},
    {"data.datasets[].train", kAny, nullptr, kJudged},
    {"data.datasets[].train.weight", kNumber, nullptr, kNeedless, "there is one source"},
    {"data.datasets[].train.max_dataset_size", kCount, nullptr, kJudged},
    {"data.datasets[].eval", kAny, nullptr, kJudged},
    {"data.datasets[].eval.resolution", kSize, nullptr, kJudged},
    {"data.datasets[].eval.height", kCount, nullptr, kJudged},
    {"data.datasets[].eval.width", kCount, nullptr, kJudged},
    {"data.datasets[].eval.guidance_scale", kNumber, nullptr, kJudged},
    {"data.datasets[].eval.num_inference_steps", kCount, nullptr, kJudged},
    {"data.datasets[].eval.max_dataset_size", kCount, nullptr, kJudged},
    {"data.datasets[].eval.per_device_batch_size", kCount, nullptr, kNeedless, kPerDevice},
    {"data.datasets[].eval.seed", kCount, nullptr, kNeedless, kSeeds},
    {"data.datasets[].image_dir", kText, nullptr, kNeedless, kMedia},
    {"data.datasets[].video_dir", kText, nullptr, kNeedless, kMedia},
    {"data.datasets[].audio_dir", kText, nullptr, kNeedless, kMedia},
    {"data.dataset_dir", kText, nullptr, kOldName, "data.datasets[0].dataset_dir"},
    {"data.max_dataset_size", kCount, nullptr, kOldName, "data.datasets[0].train.max_dataset_size"},
    {"data.image_dir", kText, nullptr, kNeedless, kMedia},
    {"data.video_dir", kText, nullptr, kNeedless, kMedia},
    {"data.audio_dir", kText, nullptr, kNeedless, kMedia},
    {"data.preprocessing_batch_size", kCount, nullptr, kNeedless, kLoading},
    {"data.dataloader_num_workers", kCount, nullptr, kNeedless, kLoading},
    {"data.enable_preprocess", kFlag, nullptr, kNeedless, kLoading},
    {"data.force_reprocess", kFlag, nullptr, kNeedless, kLoading},
    {"data.cache_dir", kText, nullptr, kNeedless, kLoading},
    {"data.sampler_type", kText, nullptr, kNeedless, kPerDevice},
    {"data.sampler_subgroup_size", kCount, nullptr, kNeedless, kPerDevice},

    {"model.finetune_type", kText, "full", kJudged},
    {"model.lora_rank", kCount, "8", kJudged},
    {"model.lora_alpha", kNumber, nullptr, kJudged},
    {"model.target_modules", kTexts, "all", kJudged},
    {"model.target_components", kTexts, "transformer", kJudged},
    {"model.model_name_or_path", kText, "black-forest-labs/FLUX.1-dev", kTaken, "model.path"},
    {"model.model_type", kText, "flux1", kJudged},
    {"model.master_weight_dtype", kText, "bfloat16", kJudged},
    {"model.resume_path", kText, nullptr, kJudged},
    {"model.resume_type", kText, nullptr, kNeedless, "`oxbow train --resume` goes on with a run"},
    {"model.resume_training_state", kFlag, nullptr, kNeedless,
     "`oxbow train --resume` goes on with a run"},
    {"model.attn_backend", kText, nullptr, kNeedless, "attention is LibTorch's own"},

    {"log.run_name", kText, nullptr, kJudged},
    {"log.project", kText, nullptr, kNeedless, kLogging},
    {"log.logging_backend", kText, nullptr, kNeedless, kLogging},
    {"log.save_dir", kText, nullptr, kJudged},
    {"log.save_freq", kCount, "10", kTaken, "checkpoint.every"},
    {"log.save_model_only", kFlag, nullptr, kNeedless, "a checkpoint always holds everything"},
    {"log.verbose", kFlag, nullptr, kNeedless, kLogging},
    {"train.save_freq", kCount, nullptr, kOldName, "log.save_freq"},
    {"train.save_dir", kText, nullptr, kOldName, "log.save_dir"},

    {"train.trainer_type", kText, "grpo", kJudged},
    {"train.max_epochs", kNumber, nullptr, kJudged},
    {"train.seed", kCount, "42", kTaken, "run.seed"},
    {"train.resolution", kSize, "512", kJudged},
    {"train.height", kCount, nullptr, kJudged},
    {"train.width", kCount, nullptr, kJudged},
    {"train.num_frames", kCount, nullptr, kJudged},
    {"train.frame_rate", kNumber, nullptr, kJudged},
    {"train.per_device_batch_size", kCount, "1", kJudged},
    {"train.group_size", kCount, "1", kTaken, "batch.group_size"},
    {"train.unique_sample_num_per_epoch", kCount, "8", kTaken, "batch.groups"},
    {"train.gradient_step_per_epoch", kCount, "2", kJudged},
    {"train.gradient_accumulation_steps", kText, "auto", kJudged},
    {"train.num_inner_epochs", kCount, "1", kTaken, "batch.passes"},
    {"train.num_inference_steps", kCount, "10", kTaken, "sampling.steps"},
    {"train.guidance_scale", kNumber, "3.5", kJudged},
    {"train.latent_storage_dtype", kText, "fp16", kJudged},
    {"train.offload_samples_to_cpu", kFlag, nullptr, kNeedless, kMemory},
    {"train.shuffle_samples", kFlag, nullptr, kNeedless,
     "an image's arithmetic does not depend on its neighbours in a batch"},
    {"train.reward_optimization_overlap", kFlag, nullptr, kNeedless, kOverlap},
    {"train.reward_optimization_overlap_mode", kText, nullptr, kNeedless, kOverlap},
    {"train.reward_optimization_overlap_poll_interval", kNumber, nullptr, kNeedless, kOverlap},
    {"train.enable_gradient_checkpointing", kAny, "false", kJudged},
    {"train.enable_gradient_checkpointing.*", kAny, nullptr, kJudged},

    {"train.global_std", kFlag, "true", kJudged},
    {"train.advantage_aggregation", kText, "gdpo", kJudged},
    {"train.clip_range", kRange, "1e-4", kJudged},
    {"train.adv_clip_range", kRange, "5", kJudged},
    {"train.kl_type", kText, nullptr, kJudged},  // x-based for grpo, v-based for nft and awm.
    {"train.kl_beta", kNumber, "0", kJudged},
    {"train.kl_weight", kText, "Uniform", kJudged},
    {"train.ref_param_device", kText, nullptr, kNeedless, kMemory},

    {"train.nft_beta", kNumber, "1", kJudged},
    {"train.awm_weighting", kText, "Uniform", kJudged},
    {"train.ghuber_power", kNumber, "0.25", kJudged},
    {"train.ema_kl_beta", kNumber, "0", kJudged},
    {"train.off_policy", kFlag, "false", kJudged},
    {"train.num_train_timesteps", kCount, "0", kJudged},
    {"train.time_sampling_strategy", kText, "discrete", kJudged},
    {"train.time_shift", kNumber, "3", kJudged},
    {"train.timestep_range", kRange, "0.9", kJudged},

    {"train.ema_decay", kNumber, "0.995", kJudged},
    {"train.ema_update_interval", kCount, "10", kJudged},
    {"train.ema_decay_schedule", kText, "power", kJudged},
    {"train.flat_steps", kCount, "0", kJudged},
    {"train.ramp_rate", kNumber, "0.001", kJudged},
    {"train.warmup_steps", kCount, "10", kJudged},
    {"train.ema_device", kText, nullptr, kNeedless, kMemory},

    {"optimizers[].name", kText, nullptr, kNeedless, "there is one policy"},
    {"optimizers[].learning_rate", kNumber, "1e-5", kJudged},
    {"optimizers[].weight_decay", kNumber, "1e-4", kJudged},
    {"optimizers[].betas", kRange, "[0.9, 0.999]", kJudged},
    {"optimizers[].eps", kNumber, "1e-8", kJudged},
    {"optimizers[].max_grad_norm", kNumber, "1", kJudged},
    {"train.learning_rate", kNumber, nullptr, kOldName, "optimizers[0].learning_rate"},
    {"train.adam_weight_decay", kNumber, nullptr, kOldName, "optimizers[0].weight_decay"},
    {"train.adam_betas", kRange, nullptr, kOldName, "optimizers[0].betas"},
    {"train.adam_epsilon", kNumber, nullptr, kOldName, "optimizers[0].eps"},
    {"train.max_grad_norm", kNumber, nullptr, kOldName, "optimizers[0].max_grad_norm"},

    {"scheduler.dynamics_type", kText, "Flow-SDE", kJudged},
    {"scheduler.noise_level", kNumber, "0.7", kJudged},
    {"scheduler.num_sde_steps", kCount, "1", kJudged},
    {"scheduler.sde_steps", kCounts, nullptr, kJudged},
    {"scheduler.flow_shift", kNumber, nullptr, kJudged},
    {"scheduler.seed", kCount, nullptr, kNeedless, kSeeds},
    {"scheduler.num_train_steps", kCount, nullptr, kOldName, "scheduler.num_sde_steps"},
    {"scheduler.train_steps", kCounts, nullptr, kOldName, "scheduler.sde_steps"},
    {"train.sde_type", kText, nullptr, kOldName, "scheduler.dynamics_type"},
    {"train.noise_level", kNumber, nullptr, kOldName, "scheduler.noise_level"},
    {"train.num_noise_steps", kCount, nullptr, kOldName, "scheduler.num_sde_steps"},
    {"train.noise_steps", kCounts, nullptr, kOldName, "scheduler.sde_steps"},

    {"eval.resolution", kSize, nullptr, kJudged},
    {"eval.height", kCount, nullptr, kJudged},
    {"eval.width", kCount, nullptr, kJudged},
    {"eval.num_frames", kCount, nullptr, kJudged},
    {"eval.frame_rate", kNumber, nullptr, kJudged},
    {"eval.guidance_scale", kNumber, nullptr, kJudged},
    {"eval.num_inference_steps", kCount, "30", kJudged},
    {"eval.eval_freq", kCount, "10", kJudged},
    {"eval.per_device_batch_size", kCount, nullptr, kNeedless, kPerDevice},
    {"eval.seed", kCount, nullptr, kNeedless, kSeeds},
    {"train.eval_args.resolution", kSize, nullptr, kOldName, "eval.resolution"},
    {"train.eval_args.guidance_scale", kNumber, nullptr, kOldName, "eval.guidance_scale"},
    {"train.eval_args.num_inference_steps", kCount, nullptr, kOldName, "eval.num_inference_steps"},
    {"train.eval_args.eval_freq", kCount, nullptr, kOldName, "eval.eval_freq"},
    {"train.eval_args.per_device_batch_size", kCount, nullptr, kNeedless, kPerDevice},
    {"train.eval_args.seed", kCount, nullptr, kNeedless, kSeeds},

    {"rewards[].name", kText, nullptr, kJudged},
    {"rewards[].reward_model", kText, nullptr, kJudged},
    {"rewards[].weight", kNumber, "1", kJudged},
    {"rewards[].weight.*", kNumber, nullptr, kJudged},
    {"rewards[].batch_size", kCount, nullptr, kJudged},
    {"rewards[].device", kText, nullptr, kJudged},
    {"rewards[].dtype", kText, nullptr, kJudged},
    {"rewards[].server_url", kText, nullptr, kJudged},
    {"rewards[].timeout", kNumber, nullptr, kJudged},
    {"rewards[].api_base_url", kText, nullptr, kJudged},
    {"rewards[].api_key", kText, nullptr, kJudged},
    {"rewards[].vlm_model", kText, nullptr, kJudged},
    {"rewards[].max_concurrent", kCount, nullptr, kJudged},
    {"rewards[].top_logprobs", kCount, nullptr, kJudged},
    {"rewards[].canonicalize", kFlag, nullptr, kJudged},
    {"rewards[].max_retries", kCount, nullptr, kNeedless, kTries},
    {"rewards[].retry_attempts", kCount, nullptr, kNeedless, kTries},
    {"rewards[].*", kAny, nullptr, kNeedless, kServer},
    {"eval_rewards[].name", kText, nullptr, kJudged},
    {"eval_rewards[].reward_model", kText, nullptr, kJudged},
    {"eval_rewards[].weight", kNumber, nullptr, kNeedless, "observed rewards have no weight"},
    {"eval_rewards[].batch_size", kCount, nullptr, kJudged},
    {"eval_rewards[].device", kText, nullptr, kJudged},
    {"eval_rewards[].dtype", kText, nullptr, kJudged},
    {"eval_rewards[].server_url", kText, nullptr, kJudged},
    {"eval_rewards[].timeout", kNumber, nullptr, kJudged},
    {"eval_rewards[].api_base_url", kText, nullptr, kJudged},
    {"eval_rewards[].api_key", kText, nullptr, kJudged},
    {"eval_rewards[].vlm_model", kText, nullptr, kJudged},
    {"eval_rewards[].max_concurrent", kCount, nullptr, kJudged},
    {"eval_rewards[].top_logprobs", kCount, nullptr, kJudged},
    {"eval_rewards[].canonicalize", kFlag, nullptr, kJudged},
    {"eval_rewards[].max_retries", kCount, nullptr, kNeedless, kTries},
    {"eval_rewards[].retry_attempts", kCount, nullptr, kNeedless, kTries},
    {"eval_rewards[].*", kAny, nullptr, kNeedless, kServer},
    {"reward.reward_model", kText, nullptr, kOldName, "rewards[0].reward_model"},
    {"reward.batch_size", kCount, nullptr, kOldName, "rewards[0].batch_size"},
    {"reward.device", kText, nullptr, kOldName, "rewards[0].device"},
    {"reward.dtype", kText, nullptr, kOldName, "rewards[0].dtype"},
    {"reward.*", kAny, nullptr, kNeedless, kServer},
};

}  // namespace

const std::vector<ForeignKey>& FlowFactoryKeys() {
  static const auto& keys = *new std::vector<ForeignKey>(std::begin(kTable), std::end(kTable));
  return keys;
}

const ForeignKey* FindFlowFactoryKey(const std::string& key) {
  for (const ForeignKey& row : kTable) {
    const std::string pattern = row.key;
    if (absl::EndsWith(pattern, ".*") ? absl::StartsWith(key, pattern.substr(0, pattern.size() - 1))
                                      : key == pattern) {
      return &row;
    }
  }
  return nullptr;
}

const std::set<std::string>& FlowFactoryLists() {
  static const auto& lists =
      *new std::set<std::string>{"data.datasets", "optimizers", "rewards", "eval_rewards"};
  return lists;
}

}  // namespace oxbow::config
