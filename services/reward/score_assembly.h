// SPDX-License-Identifier: Apache-2.0
// One batch of items on its way in, whose media may come in pieces (ScoreItem in
// proto/oxbow/v1/reward.proto).
//
// Sizes are checked, and room for the whole batch is taken, before any further piece is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/byte_budget.h"
#include "oxbow/v1/reward.pb.h"
#include "services/reward/medium.h"

namespace oxbow::reward {

// Memory of media, held until the last copy is gone.
using MediaLease = std::shared_ptr<const ByteBudget::Hold>;

class ScoreAssembly {
 public:
  // Begins the batch of a request, which loses its pixels. Errors are the call's: kInvalidArgument
  // for a medium over `medium_bytes_max` and for two items of one number where one comes in pieces;
  // for media that never fit in `room`, the memory of all calls, which outlives this; and
  // kResourceExhausted if they do not fit now. What is wrong with one medium is its own affair.
  static absl::StatusOr<ScoreAssembly> Begin(v1::ScoreRequest& request, uint64_t medium_bytes_max,
                                             ByteBudget& room);

  // True when no piece is missing.
  bool whole() const { return open_.empty(); }

  // Takes the next pieces. kInvalidArgument if they are of no medium that waits for them.
  absl::Status Add(const v1::ScoreRequest& pieces);

  const MediaLease& lease() const { return lease_; }

  // By item of the request. Requires whole(). Once.
  std::vector<absl::StatusOr<std::vector<Image8>>> TakeMedia();

 private:
  ScoreAssembly() = default;

  std::vector<Medium> media_;        // By item of the request.
  std::map<uint64_t, size_t> open_;  // Media that pieces are missing of, by the item's number.
  MediaLease lease_;
};

}  // namespace oxbow::reward
