// Whether all ranks hold the same tensors, bit for bit. Ranks that drift apart train R models and
// nothing else shows it.
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"

namespace at {
class Tensor;
}  // namespace at

namespace oxbow::parallel {

class Ranks;

// Compares SHA-256 of all names and bytes over ranks; only where it differs, the hash of each
// tensor. kDataLoss, the same on every rank, names the first tensor by name and who holds what:
// "ranks hold different tensors: a.weight: rank 2 differs from rank 0". Errors as in ranks.h.
absl::Status CheckAgreement(Ranks& ranks, const std::map<std::string, at::Tensor>& tensors);

}  // namespace oxbow::parallel
