// SPDX-License-Identifier: Apache-2.0
// Rewards that are models, from the settings of one entry of a run's config. Equal CLIP
// models of one device and type are loaded once in a process (LoadedTowers), whatever
// the number of rewards over them. Sees no torch header.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/reward/scorer.h"

namespace oxbow::rewards {

struct ModelRewardSettings {
  std::string model;  // Directory of a CLIP model (rewards/clip_towers.h), or as the reward says.
  std::string head;   // aesthetic: safetensors file of its head. geneval: directory of its CLIP.
  std::string tokenizer;  // Directory of CLIP's tokenizer; empty: that of CLIP.
  std::string device;     // As model.device; empty: cpu.
  std::string dtype;      // f32, bf16 or f16; empty: f32.
  // clipscore: flow_grpo, flow_factory or hessel; geneval: official or flow_grpo. Empty: flow_grpo.
  std::string variant;
};

using OpenedReward = absl::StatusOr<std::unique_ptr<reward::Scorer>>;

// kInvalidArgument for an unknown device, type or variant; else the errors of ClipTowers::Open,
// OpenAesthetic, OpenGeneval and OpenImageReward.
OpenedReward OpenPickScoreReward(const ModelRewardSettings& settings);
OpenedReward OpenPickScoreRankReward(const ModelRewardSettings& settings);
OpenedReward OpenHpsv2Reward(const ModelRewardSettings& settings);
OpenedReward OpenClipScoreReward(const ModelRewardSettings& settings);
OpenedReward OpenGenevalReward(const ModelRewardSettings& settings);
OpenedReward OpenImageRewardReward(const ModelRewardSettings& settings);
OpenedReward OpenAestheticReward(const ModelRewardSettings& settings);

// The part of these errors that needs no file.
absl::Status CheckModelReward(const ModelRewardSettings& settings);
absl::Status CheckGenevalReward(const ModelRewardSettings& settings);

}  // namespace oxbow::rewards
