// SPDX-License-Identifier: Apache-2.0
#include "rewards/model_rewards.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "rewards/aesthetic.h"
#include "rewards/clip_towers.h"
#include "rewards/clipscore.h"
#include "rewards/geneval.h"
#include "rewards/imagereward.h"
#include "rewards/network_files.h"
#include "rewards/preference_rewards.h"

namespace oxbow::rewards {
namespace {

// Rows of one pass. On a CPU eight fill the products, and their activations fit into a cache.
constexpr int64_t kCpuRowsMax = 8;
constexpr int64_t kGpuRowsMax = 32;

absl::StatusOr<ClipScoreVariant> VariantNamed(const std::string& name) {
  if (name.empty() || name == "flow_grpo") return ClipScoreVariant::kFlowGrpo;
  if (name == "flow_factory") return ClipScoreVariant::kFlowFactory;
  if (name == "hessel") return ClipScoreVariant::kHessel;
  return absl::InvalidArgumentError(
      absl::StrCat("variant is flow_grpo, flow_factory or hessel, got ", name));
}

absl::StatusOr<reward::GenevalVariant> GenevalVariantNamed(const std::string& name) {
  if (name.empty() || name == "flow_grpo") return reward::GenevalVariant::kFlowGrpo;
  if (name == "official") return reward::GenevalVariant::kOfficial;
  return absl::InvalidArgumentError(absl::StrCat("variant is official or flow_grpo, got ", name));
}

absl::StatusOr<std::shared_ptr<ClipTowers>> TowersIn(const std::string& directory,
                                                     const ModelRewardSettings& settings) {
  static LoadedTowers& loaded = *new LoadedTowers;
  OXBOW_ASSIGN_OR_RETURN(const auto options, OptionsNamed(settings.device, settings.dtype));
  return loaded.Get(directory, {.device = options.device,
                                .dtype = options.compute,
                                .rows_max = options.device.is_cpu() ? kCpuRowsMax : kGpuRowsMax,
                                .tokenizer = settings.tokenizer});
}

}  // namespace

absl::Status CheckModelReward(const ModelRewardSettings& settings) {
  OXBOW_RETURN_IF_ERROR(VariantNamed(settings.variant).status());
  return OptionsNamed(settings.device, settings.dtype).status();
}

absl::Status CheckGenevalReward(const ModelRewardSettings& settings) {
  OXBOW_RETURN_IF_ERROR(GenevalVariantNamed(settings.variant).status());
  return OptionsNamed(settings.device, settings.dtype).status();
}

OpenedReward OpenPickScoreReward(const ModelRewardSettings& settings) {
  OXBOW_ASSIGN_OR_RETURN(auto towers, TowersIn(settings.model, settings));
  return MakePickScore(std::move(towers));
}

OpenedReward OpenPickScoreRankReward(const ModelRewardSettings& settings) {
  OXBOW_ASSIGN_OR_RETURN(auto towers, TowersIn(settings.model, settings));
  return MakePickScoreRank(std::move(towers));
}

OpenedReward OpenHpsv2Reward(const ModelRewardSettings& settings) {
  OXBOW_ASSIGN_OR_RETURN(auto towers, TowersIn(settings.model, settings));
  return MakeHpsv2(std::move(towers));
}

OpenedReward OpenClipScoreReward(const ModelRewardSettings& settings) {
  OXBOW_ASSIGN_OR_RETURN(const ClipScoreVariant variant, VariantNamed(settings.variant));
  OXBOW_ASSIGN_OR_RETURN(auto towers, TowersIn(settings.model, settings));
  return MakeClipScore(std::move(towers), variant);
}

OpenedReward OpenGenevalReward(const ModelRewardSettings& settings) {
  OXBOW_ASSIGN_OR_RETURN(const auto variant, GenevalVariantNamed(settings.variant));
  OXBOW_ASSIGN_OR_RETURN(const auto options, OptionsNamed(settings.device, settings.dtype));
  OXBOW_ASSIGN_OR_RETURN(auto towers, TowersIn(settings.head, settings));
  return OpenGeneval(settings.model, std::move(towers), variant, options);
}

OpenedReward OpenImageRewardReward(const ModelRewardSettings& settings) {
  OXBOW_ASSIGN_OR_RETURN(const auto options, OptionsNamed(settings.device, settings.dtype));
  return OpenImageReward(settings.model, options);
}

OpenedReward OpenAestheticReward(const ModelRewardSettings& settings) {
  OXBOW_ASSIGN_OR_RETURN(auto towers, TowersIn(settings.model, settings));
  return OpenAesthetic(std::move(towers), settings.head);
}

}  // namespace oxbow::rewards
