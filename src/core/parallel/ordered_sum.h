// SPDX-License-Identifier: Apache-2.0
// A sum over parts that does not depend on how the parts are spread over ranks, bit for bit.
//
// Float addition is not associative, so an all-reduce gives other bits for another R. Where results
// must be equal, work is cut into P parts that are the same for every R (a gradient per rollout
// group), each computed by one rank, and the parts are added in one tree over 0 .. P-1:
//
//   node (0, p) = part p        node (l + 1, i) = node (l, 2i) + node (l, 2i + 1)
//
// Nodes with a missing half are not made; what is left of a number P that is no power of two is
// added from the right. A rank adds its parts as they come, as a binary counter adds ones: it keeps
// at most 2 log2(P) sums, in host memory, and no part longer than until the next one.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "core/parallel/host_copy.h"

namespace oxbow::parallel {

class Ranks;

class OrderedSum {
 public:
  // `owners[p]` is the rank that has part p, the same on every rank: each rank has neighbours, in
  // rank order, or none. `ranks` outlives this.
  OrderedSum(Ranks& ranks, std::vector<int> owners);

  // Adds this rank's next part [N], in rising p. Its memory is used and holds no value afterwards.
  void Add(at::Tensor part);

  // Once each rank has added its parts: calls `take` on every rank with the sum, piece by piece in
  // rising order, and the place of each piece's first element. [N] = [`length`] elements in all,
  // on the ranks' device. At most about `bytes_max` bytes are allocated; R and the size of a piece
  // change no bit. Errors as in ranks.h.
  using TakePiece = std::function<void(int64_t begin, const at::Tensor& piece)>;
  absl::Status Finish(int64_t length, const TakePiece& take,
                      int64_t bytes_max = int64_t{256} << 20);

  // The sums that are kept.
  int64_t kept() const { return static_cast<int64_t>(sums_.size()); }

 private:
  // A node's place in the tree.
  struct Node {
    int level;
    size_t index;
    bool IsLeftOf(const Node& other) const {
      return level == other.level && index % 2 == 0 && index + 1 == other.index;
    }
    Node parent() const { return {level + 1, index / 2}; }
  };
  std::vector<Node> NodesOf(int rank) const;

  Ranks& ranks_;
  const std::vector<int> owners_;
  size_t next_;                 // This rank's next part.
  std::vector<Node> nodes_;     // This rank's nodes, from left to right,
  std::vector<HostCopy> sums_;  // and their sums.
};

}  // namespace oxbow::parallel
