// SPDX-License-Identifier: Apache-2.0
// The prompts of a run as tensors and as they travel, so that a prompt is read or encoded once and
// not once per learner step.
//
// Holds as much as fits `bytes_max`: the conditioning of an SD3 prompt is 5 MB in both forms, and
// prompt files have tens of thousands of lines. What was used longest ago goes first. Owned by the
// thread that owns torch, but for what workers are sent: those bytes are made once, and shared.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/memory_limits.h"
#include "core/model/velocity_model.h"
#include "io/prompts/encoded_prompts.h"
#include "oxbow/v1/common.pb.h"
#include "services/learner/plan/step_plan.h"
#include "services/weights/chunk_store.h"

namespace oxbow::learner {

class ConditioningCache {
 public:
  struct Entry {
    model::Conditioning tensors;  // Rows of one.
    SentConditioning sent;
  };

  explicit ConditioningCache(std::unique_ptr<io::EncodedPrompts> prompts,
                             uint64_t bytes_max = LimitOf(kPromptsShare),
                             const Clock& clock = Clock::Steady());

  // Encodes the prompts that are not encoded yet: onto disk if that is where they are kept, else
  // into memory, as many as fit. Ranks that share a disk share the work if each begins at another
  // fraction `from` of it. Says how far it is, every half minute: it may take hours.
  absl::Status Warm(const std::vector<v1::Prompt>& prompts, double from = 0);

  // The same, but where prompts are kept on disk only the first `now` of those that are missing:
  // the others are left to Ahead.
  absl::Status WarmFirst(const std::vector<v1::Prompt>& prompts, size_t now);

  // Encodes up to `count` of the prompts that WarmFirst has left, in their order, and frees the
  // encoders' weights after the last. Asks `ended` before every few.
  absl::Status Ahead(size_t count, const std::function<bool()>& ended);

  // Frees the text encoders' weights, unless some of Warm's prompts did not fit, or are left to
  // Ahead.
  void ReleaseEncoders();

  // The prompt's conditioning, encoded now if need be. The pointer holds until the next call.
  absl::StatusOr<const Entry*> Get(const v1::Prompt& prompt);

  uint64_t bytes() const { return bytes_; }  // Bytes of all that is held.

  // Content that Get gave out and somebody still holds, by hash; for the servers of workers.
  weights::ContentStore& sent() { return sent_; }

 private:
  struct Held {
    Entry entry;
    uint64_t bytes = 0;
    uint64_t used = 0;  // Larger is later.
  };

  absl::Status WarmMemory(const std::vector<v1::Prompt>& prompts);
  absl::Status WarmDisk(const std::vector<std::string>& texts, double from);
  const Entry& Keep(uint64_t id, model::Conditioning row);
  void MakeRoom(uint64_t bytes);

  const std::unique_ptr<io::EncodedPrompts> prompts_;
  const uint64_t bytes_max_;
  const Clock& clock_;
  weights::ContentStore sent_{/*bytes_max=*/0};
  std::map<uint64_t, Held> held_;  // By prompt id.
  uint64_t bytes_ = 0;
  uint64_t uses_ = 0;
  bool all_fit_ = true;
  std::deque<std::string> left_;  // Texts that Ahead will encode.
};

}  // namespace oxbow::learner
