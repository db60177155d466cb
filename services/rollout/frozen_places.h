// SPDX-License-Identifier: Apache-2.0
// Frozen weights that a worker has in host memory once: where its network keeps them.
//
// A snapshot comes as chunks in memory. When a frozen tensor of it is in the memory of the network,
// which never changes while somebody reads it, its chunks get that place: neither the snapshot nor
// the store that serves other workers holds them any more. So the chunks of a base go while its
// network is made, one tensor after another.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "services/weights/weight_follower.h"

namespace oxbow::rollout {

// Has a chunk read from there from now on, and held no longer.
using PlaceChunk = std::function<void(const std::string& sha256, const weights::Placed& placed)>;

class FrozenPlaces {
 public:
  // `snapshot` outlives this. `place` tells all others that hold its chunks; it may be null.
  FrozenPlaces(weights::VerifiedSnapshot& snapshot, PlaceChunk place);
  ~FrozenPlaces();

  // The tensor of that name in the snapshot is in this memory for good. What is not on the CPU, or
  // has other bytes than the chunks, changes nothing.
  void Add(const std::string& name, const at::Tensor& kept);

 private:
  weights::VerifiedSnapshot& snapshot_;
  const PlaceChunk place_;
  std::map<std::string, const v1::TensorManifest*> entries_;
  uint64_t freed_ = 0;  // Bytes since freed pages went back to the system.
};

}  // namespace oxbow::rollout
