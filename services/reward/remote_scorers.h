// SPDX-License-Identifier: Apache-2.0
// Scorers of which a server elsewhere is the substance, from their entries in reward.scorers.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/reward/scorer.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::reward {

// `kind: json` (rewards/json_scorer.h) and `kind: vlm` (rewards/judge_scorer.h). Nobody is asked
// yet. kInvalidArgument names the reward and what is wrong with its entry; kNotFound a key file
// that is not there.
absl::StatusOr<std::unique_ptr<Scorer>> MakeJsonServer(const v1::ScorerConfig& config);
absl::StatusOr<std::unique_ptr<Scorer>> MakeVlmJudge(const v1::ScorerConfig& config);

// Such a scorer is cheap, so it is checked by being made.
template <absl::StatusOr<std::unique_ptr<Scorer>> (*Make)(const v1::ScorerConfig&)>
absl::Status CheckRemote(const v1::ScorerConfig& config) {
  return Make(config).status();
}

}  // namespace oxbow::reward
