// SPDX-License-Identifier: Apache-2.0
// The learner's ranks as one group: the collectives training needs, with deadlines.
//
// All ranks call the same operations in the same order with the same shapes and types. Backends:
// one rank (MakeSingleRank), Gloo on CPU and NCCL on GPU over c10d (c10d_ranks.h).
//
// Errors are the same for every operation. They are final: after the first one each later operation
// returns it again, because the ranks no longer agree on what comes next.
//   kDeadlineExceeded  not every rank arrived within the deadline: a peer is stopped. Names
//                      operation, rank, and the ranks that are behind if they are known.
//   kUnavailable       a peer closed its connection: it died or left.
//   as Abort() says    It was called on this rank.
// A wrong shape or type is the caller's error; the process dies.
//
// Tensors live on the backend's device, are contiguous and do not require gradients. The operations
// may be called from any one thread at a time; Abort from any thread at any time.
#pragma once

#include <c10/core/Device.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace at {
class Tensor;
}  // namespace at

namespace oxbow::parallel {

// An operation under way. Its tensors must not be touched until Wait has returned. If it is
// destroyed without Wait it still runs, and the next operation returns its failure.
class Pending {
 public:
  virtual ~Pending() = default;
  // Blocks until the operation has ended, at most until its deadline, which counts from its start.
  virtual absl::Status Wait() = 0;
};

// Both include waiting for ranks that come later.
struct CommunicationTime {
  absl::Duration total;    // Some operation was under way.
  absl::Duration exposed;  // The caller waited for it; in the rest it did other work.
};

class Ranks {
 public:
  virtual ~Ranks() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;                           // R.
  virtual at::Device device() const { return at::kCPU; }  // Where tensors of operations are.

  // Sum and maximum over ranks, element by element, in place. Every rank gets the same bits. The
  // backend chooses the order of the additions, which depends on R (see ordered_sum.h).
  virtual absl::Status AllReduceSum(at::Tensor& tensor) = 0;
  virtual absl::Status AllReduceMax(at::Tensor& tensor) = 0;

  // Begins the same sum: gradient buckets overlap it with the backward pass.
  virtual std::unique_ptr<Pending> StartAllReduceSum(const at::Tensor& tensor) = 0;

  // Begins the sum of `tensor` over ranks, in place, for rank `root` alone. On the other ranks the
  // tensor holds no value afterwards.
  virtual std::unique_ptr<Pending> StartReduceSum(const at::Tensor& tensor, int root) = 0;

  // output [n] <- part `rank()` of the sum of every rank's input [R n].
  virtual absl::Status ReduceScatterSum(const at::Tensor& input, at::Tensor& output) = 0;

  // output [R n] <- every rank's input [n], in rank order.
  virtual absl::Status AllGather(const at::Tensor& input, at::Tensor& output) = 0;

  virtual absl::Status Broadcast(at::Tensor& tensor, int root) = 0;  // In place.
  virtual std::unique_ptr<Pending> StartBroadcast(const at::Tensor& tensor, int root) = 0;
  virtual absl::Status Barrier() = 0;

  // Small messages in host memory (a frozen manifest, hashes). GatherBytes returns the bytes of all
  // ranks in rank order, on every rank; lengths may differ. BroadcastBytes replaces `bytes` by
  // those of the root.
  virtual absl::StatusOr<std::vector<std::string>> GatherBytes(std::string_view mine) = 0;
  virtual absl::Status BroadcastBytes(std::string& bytes, int root) = 0;

  // The times of this rank since the last call; zero if there is one rank.
  virtual CommunicationTime TakeCommunicationTime() { return {}; }

  // Ends the operation of this rank that is under way, and all later ones, with an error of the
  // code of `why`, which is one. The other ranks notice when this process ends, or at their
  // deadline.
  virtual void Abort(const absl::Status& why) = 0;
};

// One rank: every operation is the identity.
std::unique_ptr<Ranks> MakeSingleRank();

// Checks that all ranks hold the same tensors, bit for bit: ranks that differ would train R models.
// Compares a SHA-256 over all names and bytes between ranks, and the hash of each tensor only if
// that differs. kDataLoss, the same on every rank, names the first tensor in order of name and the
// ranks: "ranks hold different tensors: a.weight: rank 2 differs from rank 0". Other errors as in
// ranks.h.
absl::Status CheckAgreement(Ranks& ranks, const std::map<std::string, at::Tensor>& tensors);

}  // namespace oxbow::parallel
