// SPDX-License-Identifier: Apache-2.0
// `kind: json`: a reward that another project's server computes, over Flow-Factory's protocol.
//
//   POST URL/compute {"prompt": [text], "image": [base64 of PNG] or null,
//                     "video": [[base64 of PNG]] or null, "condition_images": null,
//                     "condition_videos": null, "extra": [metadata] or null}
//   -> 200 {"rewards": [number]}
//
// One request has pictures or videos, never both. `extra` has the metadata of each prompt, an
// object or null; servers of Flow-Factory read it and leave it unused. A groupwise server gets each
// group in a request of its own. What is not a finite number has no score
// (rewards/remote_server.h).
//
// Source: reward_server/example_server.py and rewards/my_reward_remote.py of Flow-Factory.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/reward/scorer.h"
#include "rewards/remote_server.h"

namespace oxbow::rewards {

struct JsonScorerSettings {
  std::string name;
  std::string model;  // Stands for the server in the identity; empty: the name.
  bool groupwise = false;
  uint32_t batch_max = 16;  // Items of one request of a pointwise server.
  int concurrency = 4;      // Requests at a time.
  absl::Duration time_max =
      absl::Seconds(kRemoteSecondsMax);  // For one request, with all its tries.
  RemoteServer::Options server = {};
};

// Asks nothing yet: the server may start later. kInvalidArgument as io::CheckHttpUrl.
absl::StatusOr<std::unique_ptr<reward::Scorer>> MakeJsonScorer(const JsonScorerSettings& settings);

}  // namespace oxbow::rewards
