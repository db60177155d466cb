// SPDX-License-Identifier: Apache-2.0

#include "simulate/run_model.h"

namespace oxbow::simulate {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;
// The dense bfloat16 rate that a whole training or sampling loop reaches on one GPU of the A100
// class (peak 312e12). An assumption, as is everything derived from it.
constexpr double kFlops = 150e12;
constexpr double kTenGigabit = 1.25e9;
constexpr double kHundredGigabit = 12.5e9;

// Numbers that determine the cost of a model and its sampling, in floating-point operations.
struct Network {
  double parameters;
  double tokens;           // One image or video and its text.
  double text_tokens;      // Each of 4096 numbers in 16 bits.
  double attention_flops;  // One pass, without the matrices that `parameters` counts.
  double passes;           // Network evaluations per step: 2 with classifier-free guidance.
  double sampling_steps;
  double trained_steps;
  double group_size;
  uint64_t groups_per_step = 48;
};

double PassSeconds(const Network& n) {
  return (2 * n.parameters * n.tokens + n.attention_flops) / kFlops;
}

RunModel ModelOf(const Network& n, double trajectory_bytes, double weight_bytes,
                 double gradient_bytes) {
  RunModel model;
  model.group_size = static_cast<uint64_t>(n.group_size);
  model.groups_in_flight = 2;
  model.batch_groups_max = 1;  // One group fills the GPU's memory.
  model.ranks = 8;
  model.groups_per_step = n.groups_per_step;
  model.checkpoint_every = 25;
  Costs& c = model.costs;
  c.group_s = n.group_size * n.sampling_steps * n.passes * PassSeconds(n);
  c.spread = 0.1;
  c.straggler_share = 0.01;
  c.straggler_factor = 3;
  c.worker_spread = 0.1;
  // Forward and backward are three passes; no reference policy.
  c.update_group_s = n.group_size * n.trained_steps * n.passes * 3 * PassSeconds(n);
  c.update_s = 1;
  c.gradient_bytes = gradient_bytes;
  c.updates = 2;
  c.exposed_share = 0.5;
  c.rank_link_bytes_per_s = kHundredGigabit;
  c.publish_s = 0.1 + weight_bytes / 2e9;  // SHA-256 and a copy to host memory, at 2 GB/s.
  c.plan_s = 0.05;
  c.finish_s = 0.1;
  c.checkpoint_s = 5 + 3 * gradient_bytes / 1e9;  // Weights and two moments, to a disk of 1 GB/s.
  c.reward_s = 0;
  c.reward_latency_s = 1;
  c.apply_s = 0.5 + weight_bytes / 2e9;
  c.latency_s = 0.0005;
  c.weight_bytes = weight_bytes;
  c.relay_bytes = 4 * kMiB;
  c.group_bytes = n.group_size * trajectory_bytes;
  c.conditioning_bytes = n.text_tokens * 4096 * 2;
  c.learner_link_bytes_per_s = kTenGigabit;
  c.worker_link_bytes_per_s = kTenGigabit;
  c.message_s = 50e-6;
  c.worker_restart_s = 120;
  c.learner_restart_s = 180;
  return model;
}

// SD3.5-M at 512 px: 2.5e9 parameters, 1024 image and 205 text tokens; attention
// 24 blocks x 4 N^2 d with d = 1536.
Network Sd35Medium() {
  return {.parameters = 2.5e9,
          .tokens = 1229,
          .text_tokens = 205,
          .attention_flops = 24 * 4 * 1229.0 * 1229.0 * 1536,
          .passes = 2,
          .sampling_steps = 10,
          .trained_steps = 2,  // A window, as MixGRPO and Flow-GRPO-Fast train.
          .group_size = 24};
}

// Wan2.1 1.3B at 480p, 81 frames: 21 x 30 x 52 latent tokens; 30 blocks, d = 1536.
Network WanSmall() {
  return {.parameters = 1.3e9,
          .tokens = 32760,
          .text_tokens = 512,
          .attention_flops = 30 * 4 * 32760.0 * 32760.0 * 1536,
          .passes = 2,
          .sampling_steps = 20,
          .trained_steps = 2,
          .group_size = 8};
}

// FLUX.1-dev at 512 px: 11.9e9 parameters, of which 3.2e9 modulate and see one row an image; 1024
// image and 128 text tokens; 57 blocks, d = 3072. As flow_grpo's pickscore_flux: 6 steps, 5
// trained.
Network FluxDev() {
  return {.parameters = 8.7e9,
          .tokens = 1152,
          .text_tokens = 128,
          .attention_flops = 57 * 4 * 1152.0 * 1152.0 * 3072,
          .passes = 1,
          .sampling_steps = 6,
          .trained_steps = 5,
          .group_size = 24};
}

// Wan2.1 1.3B at 240 x 416, 33 frames: 9 x 15 x 26 latent tokens. As flow_grpo's
// general_ocr_wan2_1: 20 steps, 19 trained, 32 groups of 4.
Network WanClips() {
  return {.parameters = 1.3e9,
          .tokens = 3510,
          .text_tokens = 512,
          .attention_flops = 30 * 4 * 3510.0 * 3510.0 * 1536,
          .passes = 2,
          .sampling_steps = 20,
          .trained_steps = 19,
          .group_size = 4,
          .groups_per_step = 32};
}

// The measured run: configs/recipes/digits-op-grpo.yaml with one worker on two virtual cores.
RunModel Digits() {
  RunModel model;
  model.groups_per_step = 8;
  model.group_size = 8;
  model.groups_in_flight = 8;
  model.eval_every = 10;
  model.costs = {.group_s = 0.02,
                 .spread = 0.372,
                 .linger_s = 0.003,
                 .apply_s = 0.027,
                 .reward_latency_s = 0.00378,
                 .update_group_s = 0.0253,
                 .publish_s = 0.00927,
                 .plan_s = 0.0135,
                 .finish_s = 0.000283,
                 .eval_s = 0.454,
                 .checkpoint_s = 0.125,
                 .weight_bytes = 4 * 437776,          // float32
                 .group_bytes = 8 * 11 * 8 * 20 * 4,  // float32, 11 latents of 8 x 20 a trajectory
                 .learner_link_bytes_per_s = kTenGigabit,
                 .worker_link_bytes_per_s = kTenGigabit,
                 .message_s = 50e-6};
  return model;
}

std::vector<Preset> Make() {
  const std::string times =
      "GPU times are parameters x tokens arithmetic at 150 TFLOP/s, not measured; 10 Gbit/s to "
      "every host, 100 Gbit/s between ranks";
  std::vector<Preset> presets;
  presets.push_back(
      {"digits", "the embedded digits model, one worker on two virtual cores",
       "times measured in a run of configs/recipes/digits-op-grpo.yaml (docs/scaling.md); the "
       "network is not part of them",
       Digits()});
  // LoRA of rank 32 in the attention of 24 blocks: 19 M parameters, 38 MB in bfloat16.
  presets.push_back({"sd35m_lora", "SD3.5-M 512 px, LoRA: 38 MB published, 33.6 MiB a group", times,
                     ModelOf(Sd35Medium(), 1.4 * kMiB, 38e6, 76e6)});
  presets.push_back({"sd35m_full", "SD3.5-M 512 px, all weights: 5 GB published", times,
                     ModelOf(Sd35Medium(), 1.4 * kMiB, 5e9, 10e9)});
  // Rank 64 in 342 modules: 179 M parameters. Seven latents of 16 x 64 x 64 in 16 bits.
  presets.push_back({"flux_lora", "FLUX.1-dev 512 px, LoRA: 359 MB published, 21 MiB a group",
                     times, ModelOf(FluxDev(), 0.875 * kMiB, 359e6, 717e6)});
  // Rank 32 in 240 modules: 23.6 M parameters. 20 latents of 16 x 9 x 30 x 52 in 16 bits.
  presets.push_back({"wan21_lora",
                     "Wan2.1 1.3B, 33 frames of 240 x 416, LoRA: 47 MB published, 34.3 MiB a group",
                     times, ModelOf(WanClips(), 20 * 449280.0, 47e6, 94e6)});
  presets.push_back({"wan21_full",
                     "Wan2.1 1.3B, 480p, 81 frames: 2.6 GB published, 672 MiB a group", times,
                     ModelOf(WanSmall(), 84 * kMiB, 2.6e9, 5.2e9)});
  return presets;
}

}  // namespace

const std::vector<Preset>& Presets() {
  static const auto& presets = *new std::vector<Preset>(Make());
  return presets;
}

std::optional<Preset> FindPreset(const std::string& name) {
  for (const Preset& preset : Presets()) {
    if (preset.name == name) return preset;
  }
  return std::nullopt;
}

}  // namespace oxbow::simulate
