// SPDX-License-Identifier: Apache-2.0
// Where the ranks meet before they can talk: a c10d store on rank 0.
//
// Keys, under "oxbow/<restart>/":
//
//   claim/<rank>  counter, 1 for the first process       here/<rank>  the size it was given
//   at/<rank>     "<sequence> <operation>", the latest operation it has begun
//   left/<rank>   it no longer needs the store
//
// If a launcher's agent has a store, "oxbow/rank_zero" there says where the store of rank 0 is.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/parallel/c10d_ranks.h"

namespace c10d {
class Store;
}

namespace oxbow::parallel {

// Hosts or finds the store and waits until every rank is here; errors as JoinRanks.
absl::StatusOr<c10::intrusive_ptr<c10d::Store>> Meet(const JoinOptions& options);

// Each rank's operation, kept in the store so that an error can name the ranks that are behind.
class Positions {
 public:
  // The store exists for as long as rank 0.
  Positions(c10::intrusive_ptr<c10d::Store> store, int rank, int size);

  // Sends one small message and waits for nothing.
  void Note(uint64_t sequence, const std::string& operation);

  // The ranks that have not begun operation `sequence`.
  struct Laggards {
    std::vector<int> ranks;
    std::string text;  // "; behind: rank 2 (Barrier 17)"; empty if there are none.
  };

  // The text says so if the store does not answer within a second. To be called once: after it the
  // rank no longer uses the store, and the store's host waits up to a second for the others to call
  // it too.
  Laggards Behind(uint64_t sequence) const;

 private:
  const c10::intrusive_ptr<c10d::Store> store_;
  const int rank_;
  const int size_;
};

}  // namespace oxbow::parallel
