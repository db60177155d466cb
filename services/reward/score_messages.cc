// SPDX-License-Identifier: Apache-2.0
#include "services/reward/score_messages.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace oxbow::reward {
namespace {

absl::Status StatusOf(int32_t code, const std::string& message, const std::string& endpoint) {
  return Annotate(absl::Status(static_cast<absl::StatusCode>(code), message),
                  absl::StrCat("reward server ", endpoint));
}

// The same reason under a code that is not taken for an absence.
absl::Status Answered(const absl::Status& status) {
  return IsAbsence(status) ? absl::InternalError(status.message()) : status;
}

absl::StatusOr<double> Finite(const std::string& name, double value, const std::string& endpoint) {
  if (std::isfinite(value)) return value;
  return absl::InternalError(
      absl::StrCat("reward ", name, " is not finite (", value, "): ", endpoint));
}

absl::StatusOr<double> ValueOf(const v1::RewardOutcome& outcome, const std::string& endpoint) {
  if (outcome.status_code() == 0) return Finite(outcome.name(), outcome.value(), endpoint);
  const absl::Status status = StatusOf(outcome.status_code(), outcome.status_message(), endpoint);
  // An image that takes too long would do so again.
  const bool absent = absl::IsUnavailable(status) || absl::IsResourceExhausted(status);
  return absent ? status : Answered(status);
}

}  // namespace

bool IsAbsence(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsCancelled(status) || absl::IsResourceExhausted(status);
}

RewardFacts FactsOf(const v1::RewardDescription& description) {
  const auto reads = [&](const char* medium) {
    return std::count(description.media().begin(), description.media().end(), medium) > 0;
  };
  return {.name = description.name(),
          .value_min = description.value_min(),
          .value_max = description.value_max(),
          .help = description.help(),
          .groupwise = description.groupwise(),
          .identity = description.identity(),
          .metadata_keys = {description.metadata_keys().begin(), description.metadata_keys().end()},
          .batch_max = description.batch_max(),
          .images = description.media().empty() || reads("image"),
          .videos = reads("video"),
          .frames_every = std::max(1U, description.frames_every())};
}

void Describe(const RewardFacts& facts, v1::RewardDescription& description) {
  description.set_name(facts.name);
  description.set_value_min(facts.value_min);
  description.set_value_max(facts.value_max);
  description.set_groupwise(facts.groupwise);
  description.set_help(facts.help);
  description.set_identity(facts.identity);
  if (facts.images) description.add_media("image");
  if (facts.takes_videos()) description.add_media("video");
  for (const std::string& key : facts.metadata_keys) description.add_metadata_keys(key);
  description.set_batch_max(facts.batch_max);
  if (facts.frames_every > 1) description.set_frames_every(facts.frames_every);
}

std::map<std::string, absl::StatusOr<double>> OutcomesOf(const v1::ScoreResponse& response,
                                                         const std::vector<std::string>& wanted,
                                                         const std::string& endpoint) {
  std::map<std::string, absl::StatusOr<double>> outcomes;
  for (const v1::RewardOutcome& outcome : response.outcomes()) {
    outcomes.insert_or_assign(outcome.name(), ValueOf(outcome, endpoint));
  }
  if (response.outcomes().empty() &&
      response.status_code() == 0) {  // A server that knows no outcomes.
    for (const v1::NamedValue& value : response.rewards()) {
      outcomes.insert_or_assign(value.name(), Finite(value.name(), value.value(), endpoint));
    }
  }
  std::map<std::string, absl::StatusOr<double>> result;
  for (const std::string& name : wanted) {
    if (const auto found = outcomes.find(name); found != outcomes.end()) {
      result.insert(*found);
    } else if (response.status_code() != 0) {
      result.emplace(
          name, Answered(StatusOf(response.status_code(), response.status_message(), endpoint)));
    } else {
      result.emplace(
          name, absl::InternalError(absl::StrCat("answer lacks reward ", name, ": ", endpoint)));
    }
  }
  return result;
}

}  // namespace oxbow::reward
