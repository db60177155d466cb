#include "rewards/model_rewards.h"

#include <map>
#include <tuple>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/status_macros.h"
#include "core/model/device.h"
#include "rewards/aesthetic.h"
#include "rewards/clip_towers.h"
#include "rewards/clipscore.h"
#include "rewards/hpsv2.h"
#include "rewards/imagereward.h"
#include "rewards/pickscore.h"
#include "rewards/pickscore_rank.h"

namespace oxbow::rewards {
namespace {

absl::StatusOr<at::ScalarType> TypeNamed(const std::string& name) {
  if (name.empty() || name == "f32") return at::kFloat;
  if (name == "bf16") return at::kBFloat16;
  if (name == "f16") return at::kHalf;
  return absl::InvalidArgumentError(absl::StrCat("dtype is f32, bf16 or f16, got ", name));
}

absl::StatusOr<ClipScoreVariant> VariantNamed(const std::string& name) {
  if (name.empty() || name == "flow_grpo") return ClipScoreVariant::kFlowGrpo;
  if (name == "flow_factory") return ClipScoreVariant::kFlowFactory;
  if (name == "hessel") return ClipScoreVariant::kHessel;
  return absl::InvalidArgumentError(
      absl::StrCat("variant is flow_grpo, flow_factory or hessel, got ", name));
}

// Models that some reward of this process holds.
class LoadedTowers {
 public:
  absl::StatusOr<std::shared_ptr<ClipTowers>> Get(const std::filesystem::path& directory,
                                                  const ClipTowersOptions& options) {
    std::error_code ignored;
    const Key key{std::filesystem::weakly_canonical(directory, ignored).string(),
                  options.device.str(), options.dtype};
    absl::MutexLock lock(&mutex_);  // Held while a model loads: another reward may want the same.
    if (auto held = towers_[key].lock()) return held;
    OXBOW_ASSIGN_OR_RETURN(std::shared_ptr<ClipTowers> towers,
                           ClipTowers::Open(directory, options));
    towers_[key] = towers;
    return towers;
  }

 private:
  using Key = std::tuple<std::string, std::string, at::ScalarType>;
  absl::Mutex mutex_;
  std::map<Key, std::weak_ptr<ClipTowers>> towers_ ABSL_GUARDED_BY(mutex_);
};

absl::StatusOr<std::shared_ptr<ClipTowers>> TowersOf(const ModelRewardSettings& settings) {
  static LoadedTowers& loaded = *new LoadedTowers;
  ClipTowersOptions options;
  OXBOW_ASSIGN_OR_RETURN(options.dtype, TypeNamed(settings.dtype));
  OXBOW_ASSIGN_OR_RETURN(options.device,
                         model::DeviceNamed(settings.device.empty() ? "cpu" : settings.device));
  return loaded.Get(settings.model, options);
}

}  // namespace

absl::Status CheckModelReward(const ModelRewardSettings& settings) {
  OXBOW_RETURN_IF_ERROR(TypeNamed(settings.dtype).status());
  OXBOW_RETURN_IF_ERROR(VariantNamed(settings.variant).status());
  return model::DeviceNamed(settings.device.empty() ? "cpu" : settings.device).status();
}

OpenedReward OpenPickScoreReward(const ModelRewardSettings& settings) {
  OXBOW_ASSIGN_OR_RETURN(std::shared_ptr<ClipTowers> towers, TowersOf(settings));
  return MakePickScore(std::move(towers));
}

OpenedReward OpenPickScoreRankReward(const ModelRewardSettings& settings) {
  OXBOW_ASSIGN_OR_RETURN(std::shared_ptr<ClipTowers> towers, TowersOf(settings));
  return MakePickScoreRank(std::move(towers));
}

OpenedReward OpenHpsv2Reward(const ModelRewardSettings& settings) {
  OXBOW_ASSIGN_OR_RETURN(std::shared_ptr<ClipTowers> towers, TowersOf(settings));
  return MakeHpsv2(std::move(towers));
}

OpenedReward OpenClipScoreReward(const ModelRewardSettings& settings) {
  OXBOW_ASSIGN_OR_RETURN(const ClipScoreVariant variant, VariantNamed(settings.variant));
  OXBOW_ASSIGN_OR_RETURN(std::shared_ptr<ClipTowers> towers, TowersOf(settings));
  return MakeClipScore(std::move(towers), variant);
}

OpenedReward OpenImageRewardReward(const ModelRewardSettings& settings) {
  model::exported::NetworkOptions options;
  OXBOW_ASSIGN_OR_RETURN(options.compute, TypeNamed(settings.dtype));
  OXBOW_ASSIGN_OR_RETURN(options.device,
                         model::DeviceNamed(settings.device.empty() ? "cpu" : settings.device));
  return OpenImageReward(settings.model, options);
}

OpenedReward OpenAestheticReward(const ModelRewardSettings& settings) {
  OXBOW_ASSIGN_OR_RETURN(std::shared_ptr<ClipTowers> towers, TowersOf(settings));
  return OpenAesthetic(std::move(towers), settings.head);
}

}  // namespace oxbow::rewards
