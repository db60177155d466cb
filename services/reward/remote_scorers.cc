// SPDX-License-Identifier: Apache-2.0
#include "services/reward/remote_scorers.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "rewards/json_scorer.h"
#include "rewards/judge_scorer.h"

namespace oxbow::reward {
namespace {

constexpr uint32_t kConcurrencyMax = 256;
constexpr double kTimeoutMax = 3600;

// Where and how a scorer asks, the same for all kinds.
template <typename Settings>
absl::Status SetServer(const v1::ScorerConfig& config, Settings& settings) {
  const double seconds = config.timeout_seconds();
  if (!(seconds >= 0 && seconds <= kTimeoutMax) || config.concurrency() > kConcurrencyMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("timeout_seconds is in 0..", kTimeoutMax, " and concurrency in 0..",
                     kConcurrencyMax, ", got ", seconds, " and ", config.concurrency()));
  }
  if (config.concurrency() > 0) settings.concurrency = static_cast<int>(config.concurrency());
  if (seconds > 0) settings.time_max = absl::Seconds(seconds);
  settings.server.url = config.url();
  if (config.key_file().empty()) return absl::OkStatus();
  OXBOW_ASSIGN_OR_RETURN(settings.server.key, rewards::ReadKey(config.key_file()));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Scorer>> Json(const v1::ScorerConfig& config) {
  rewards::JsonScorerSettings settings{.name = config.name(), .model = config.llm()};
  const std::string& variant = config.variant();
  if (!variant.empty() && variant != "pointwise" && variant != "groupwise") {
    return absl::InvalidArgumentError(
        absl::StrCat("variant is pointwise or groupwise, got ", variant));
  }
  settings.groupwise = variant == "groupwise";
  if (config.batch_max() > 0) settings.batch_max = config.batch_max();
  OXBOW_RETURN_IF_ERROR(SetServer(config, settings));
  return rewards::MakeJsonScorer(settings);
}

absl::StatusOr<std::unique_ptr<Scorer>> Vlm(const v1::ScorerConfig& config) {
  rewards::JudgeSettings settings{
      .name = config.name(),
      .preset = config.variant().empty() ? config.name() : config.variant(),
      .llm = config.llm(),
      .question = config.question()};
  OXBOW_RETURN_IF_ERROR(SetServer(config, settings));
  return rewards::MakeJudge(std::move(settings));
}

absl::StatusOr<std::unique_ptr<Scorer>> Named(const v1::ScorerConfig& config,
                                              absl::StatusOr<std::unique_ptr<Scorer>> scorer) {
  if (!scorer.ok()) return Annotate(scorer.status(), "reward " + config.name());
  return scorer;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Scorer>> MakeJsonServer(const v1::ScorerConfig& config) {
  return Named(config, Json(config));
}

absl::StatusOr<std::unique_ptr<Scorer>> MakeVlmJudge(const v1::ScorerConfig& config) {
  return Named(config, Vlm(config));
}

}  // namespace oxbow::reward
