// SPDX-License-Identifier: Apache-2.0
#include "services/reward/score_call.h"

#include <set>

#include "services/reward/score_messages.h"

namespace oxbow::reward {
namespace {

// The images and rewards of the batch for which `open` is true of their outcome (nullptr: none), or
// nothing if there are none. A whole group stays one.
template <typename Predicate>
std::optional<ScoreBatch> Part(ScoreCall& call, const ScoreBatch& batch, Predicate open)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(call.mutex) {
  ScoreBatch part{.images = {},
                  .rewards = {},
                  .whole_group = batch.whole_group,
                  .frames_every = batch.frames_every};
  std::set<size_t> images;
  for (const std::string& reward : batch.rewards) {
    bool some = false;
    for (const size_t i : batch.images) {
      const auto outcome = call.outcomes[i].find(reward);
      if (!open(outcome == call.outcomes[i].end() ? nullptr : &outcome->second)) continue;
      images.insert(i);
      some = true;
    }
    if (some) part.rewards.push_back(reward);
  }
  if (images.empty()) return std::nullopt;
  part.images.assign(images.begin(), images.end());
  if (batch.whole_group) part.images = batch.images;
  return part;
}

}  // namespace

bool IsUnscorable(const absl::Status& status) { return !status.ok() && !IsAbsence(status); }

bool IsFinal(const absl::Status& status) { return absl::IsInvalidArgument(status); }

std::optional<ScoreBatch> Unanswered(ScoreCall& call, const ScoreBatch& batch) {
  absl::MutexLock lock(&call.mutex);
  return Part(call, batch,
              [](const absl::StatusOr<double>* outcome) { return outcome == nullptr; });
}

std::optional<ScoreBatch> Reopen(ScoreCall& call, const ScoreBatch& batch) {
  absl::MutexLock lock(&call.mutex);
  auto part = Part(call, batch, [](const absl::StatusOr<double>* outcome) {
    return outcome != nullptr && IsUnscorable(outcome->status()) && !IsFinal(outcome->status());
  });
  if (!part.has_value()) return std::nullopt;
  for (const size_t i : part->images) {
    for (const std::string& reward : part->rewards) {
      const auto outcome = call.outcomes[i].find(reward);
      if (outcome == call.outcomes[i].end()) continue;
      const absl::Status& status = outcome->second.status();
      if (batch.whole_group || (!status.ok() && !IsFinal(status))) call.outcomes[i].erase(outcome);
    }
  }
  return part;
}

void Settle(ScoreCall& call, const ScoreBatch& batch, const absl::Status& status) {
  absl::MutexLock lock(&call.mutex);
  for (const size_t i : batch.images) {
    for (const std::string& reward : batch.rewards) call.outcomes[i].try_emplace(reward, status);
  }
}

}  // namespace oxbow::reward
