// Prompts encoded once: what the network gets of each, as tensors and as it travels.
//
// Owned by the thread that owns torch.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/model/velocity_model.h"
#include "oxbow/v1/common.pb.h"

namespace oxbow::learner {

// Encodes prompts, one row each: tokens [B, S, C], pooled [B, P].
using PromptEncoder =
    std::function<absl::StatusOr<model::Conditioning>(const std::vector<std::string>& texts)>;

class ConditioningCache {
 public:
  struct Entry {
    model::Conditioning tensors;  // Rows of one.
    v1::Conditioning wire;
  };

  explicit ConditioningCache(PromptEncoder encoder, size_t batch = 64);

  // Encodes the prompts that are not there yet, in batches.
  absl::Status Warm(const std::vector<v1::Prompt>& prompts);

  // The prompt's conditioning, encoded now if need be. The pointer holds as long as the cache.
  absl::StatusOr<const Entry*> Get(const v1::Prompt& prompt);

 private:
  const PromptEncoder encoder_;
  const size_t batch_;
  std::map<uint64_t, Entry> entries_;  // By prompt id.
};

}  // namespace oxbow::learner
