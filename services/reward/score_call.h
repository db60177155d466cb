// SPDX-License-Identifier: Apache-2.0
// One call of RewardClient::Score: what is asked, and what is answered so far.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "oxbow/v1/reward.pb.h"
#include "services/reward/score_plan.h"
#include "services/reward/travelling_media.h"

namespace oxbow::reward {

// True if the image has no score because a server answered without one.
bool IsUnscorable(const absl::Status& status);

// True if the server said that this very image cannot be scored, INVALID_ARGUMENT as the status of
// the item: no further try can bring a score.
bool IsFinal(const absl::Status& status);

using Outcomes = std::map<std::string, absl::StatusOr<double>>;  // By reward.

struct ScoreCall {
  v1::Prompt prompt;
  TravellingMedia media;
  bool waits = false;
  std::function<void(const std::string&)> says = nullptr;
  absl::Duration end;
  uint64_t group = 0;
  absl::Mutex mutex = {};
  std::vector<Outcomes> outcomes ABSL_GUARDED_BY(mutex) = {};  // By image.
  absl::Status absence ABSL_GUARDED_BY(mutex) = {};  // A reward that must not be missing is.
};

// The images and rewards of the batch that have no answer; nothing if all have one.
std::optional<ScoreBatch> Unanswered(ScoreCall& call, const ScoreBatch& batch);

// The part without a score that is to be asked for again: its answers are forgotten.
// Final ones stay.
std::optional<ScoreBatch> Reopen(ScoreCall& call, const ScoreBatch& batch);

// The answer to all that is still unanswered.
void Settle(ScoreCall& call, const ScoreBatch& batch, const absl::Status& status);

}  // namespace oxbow::reward
