// SPDX-License-Identifier: Apache-2.0
// Checks that all ranks hold the same tensors, bit for bit. Ranks that differ would train R models,
// and nothing else would show it.
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"

namespace at {
class Tensor;
}  // namespace at

namespace oxbow::parallel {

class Ranks;

// Compares a SHA-256 over all names and bytes between ranks, and the hash of each tensor only if
// that differs. kDataLoss, the same on every rank, names the first tensor in order of name and the
// ranks: "ranks hold different tensors: a.weight: rank 2 differs from rank 0". Other errors as in
// ranks.h.
absl::Status CheckAgreement(Ranks& ranks, const std::map<std::string, at::Tensor>& tensors);

}  // namespace oxbow::parallel
