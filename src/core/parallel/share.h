// SPDX-License-Identifier: Apache-2.0
// Each of R ranks' share of `count` items: contiguous ranges whose sizes differ by at most one.
#pragma once

#include <cstddef>

namespace oxbow::parallel {

struct Share {
  size_t begin = 0;
  size_t end = 0;  // One past the last.
  bool Has(size_t i) const { return begin <= i && i < end; }
};

// [rank count / R, (rank + 1) count / R): the shares of all ranks cover every item once.
inline Share ShareOf(size_t count, int rank, int ranks) {
  const auto r = static_cast<size_t>(rank);
  const auto all = static_cast<size_t>(ranks);
  return {r * count / all, (r + 1) * count / all};
}

// The rank whose share has item `i` of `count`.
inline int OwnerOf(size_t i, size_t count, int ranks) {
  int rank = 0;
  while (!ShareOf(count, rank, ranks).Has(i)) ++rank;
  return rank;
}

}  // namespace oxbow::parallel
