// A sum over parts that does not depend on how the parts are spread over ranks, bit for bit.
//
// Float addition is not associative, so an all-reduce gives other bits for another R. Where results
// must be equal, work is cut into P parts that are the same for every R (a gradient per rollout
// group), each computed by one rank, and the parts are added one after another in part order:
//
//   total = ((0 + part_0) + part_1) + ... + part_{P-1}
//
// which is also what a single rank gets when it adds its parts in order into a zeroed tensor.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"

namespace at {
class Tensor;
}  // namespace at

namespace oxbow::parallel {

class Ranks;

// `owners[p]` is the rank that holds part p, the same vector on every rank; a rank may hold none.
// `mine` [k, N] holds this rank's k parts in rising p; `total` [N] gets the sum on every rank.
// Works in pieces, so that besides `mine` at most about `bytes_max` bytes are allocated. Neither R
// nor the size of a piece changes any bit of the result. Errors as in ranks.h.
absl::Status SumInOrder(Ranks& ranks, const std::vector<int>& owners, const at::Tensor& mine,
                        at::Tensor& total, int64_t bytes_max = int64_t{256} << 20);

}  // namespace oxbow::parallel
