// The learner's ranks as one group: the collectives training needs, with deadlines.
//
// All ranks call the same operations in the same order. A rank that stays away makes the others
// fail with kDeadlineExceeded; nothing hangs. Backends: one rank (here), Gloo and NCCL over c10d.
#pragma once

#include <memory>

#include "absl/status/status.h"

namespace at {
class Tensor;
}  // namespace at

namespace oxbow::parallel {

class Ranks {
 public:
  virtual ~Ranks() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  virtual absl::Status AllReduceSum(at::Tensor& tensor) = 0;         // In place.
  virtual absl::Status Broadcast(at::Tensor& tensor, int root) = 0;  // In place.
  virtual absl::Status Barrier() = 0;
};

// World of one: every operation is the identity.
std::unique_ptr<Ranks> MakeSingleRank();

}  // namespace oxbow::parallel
