// SPDX-License-Identifier: Apache-2.0
// Weights on this machine's disk, in place of those that a learner would send.
//
// A worker that is given the run's model directory makes the tensors of a manifest from its files,
// as the learner has made them: in the manifest's types, or rounded to int8. Chunks that have the
// manifest's hashes are taken; the others are fetched. So another directory costs time alone.
// Chunks whose bytes are in a file as they are stay there, and take no memory.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "io/weight_files.h"
#include "oxbow/v1/weight_channel.pb.h"
#include "services/weights/download.h"

namespace oxbow::rollout {

class LocalWeights {
 public:
  // Opens a diffusers directory. Errors name the file.
  static absl::StatusOr<std::unique_ptr<LocalWeights>> Open(const std::string& path);

  // Gives `download` what it still needs and the directory has; returns how many bytes it took.
  // Holds one tensor at a time.
  uint64_t Offer(const v1::SnapshotManifest& manifest, weights::Download& download) const;

 private:
  LocalWeights() = default;

  std::map<std::string, io::WeightFiles> files_;  // By the prefix of their tensors' names.
};

}  // namespace oxbow::rollout
