// SPDX-License-Identifier: Apache-2.0
// Host memory that the ranks of one machine have in common, so that eight ranks of a large model
// keep its weights once and not eight times.
#pragma once

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"

namespace oxbow::parallel {

class Ranks;

class NodeMemory {
 public:
  // Called on all ranks with the same number: the ranks of each machine map the same `bytes` of
  // zeros. Where one of the machine cannot see the memory of another, as from another container,
  // each has its own. Pages are taken as they are written to. kResourceExhausted: the address space
  // is full; other errors as in ranks.h.
  static absl::StatusOr<std::shared_ptr<NodeMemory>> Share(Ranks& ranks, size_t bytes);
  ~NodeMemory();
  NodeMemory(const NodeMemory&) = delete;
  NodeMemory& operator=(const NodeMemory&) = delete;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  int place() const { return place_; }  // This rank's among those of the machine.
  int count() const { return count_; }  // 1: it is this rank's own.

  // Takes all pages of the first `bytes`, which a GPU then reads without a copy in between. Without
  // CUDA it does nothing. To be called once.
  void Pin(size_t bytes);

 private:
  NodeMemory(std::byte* data, size_t bytes, int place, int count)
      : data_(data), bytes_(bytes), place_(place), count_(count) {}

  std::byte* const data_;
  const size_t bytes_;
  const int place_;
  const int count_;
  bool pinned_ = false;
};

}  // namespace oxbow::parallel
