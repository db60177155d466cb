// The learner's ranks as one group: the collectives training needs, with deadlines.
//
// All ranks call the same operations in the same order with the same shapes and types. Backends:
// one rank (MakeSingleRank), Gloo on CPU and NCCL on GPU over c10d (c10d_ranks.h).
//
// Errors are the same for every operation. They are final: after the first one each later operation
// returns it again, because the ranks no longer agree on what comes next.
//   kDeadlineExceeded  not every rank arrived within the deadline. Names operation, rank, and the
//                      ranks that are behind where they are known. A stopped peer.
//   kUnavailable       a peer closed its connection: it died or left.
//   kAborted           Abort() was called on this rank.
// A mistaken shape or type is the caller's and dies.
//
// Tensors live on the backend's device, are contiguous and do not require gradients. The operations
// may be called from any one thread at a time; Abort from any thread at any time.
#pragma once

#include <c10/core/Device.h>

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

// An operation under way. Its tensors must be left alone until Wait has returned. One dropped
// without Wait still runs; its failure then shows in the next operation.
class Pending {
 public:
  virtual ~Pending() = default;
  // Blocks until the operation has ended, at most until its deadline, which counts from its start.
  virtual absl::Status Wait() = 0;
};

// Both include waiting for ranks that come later.
struct CommunicationTime {
  absl::Duration total;    // Some operation was under way.
  absl::Duration exposed;  // The caller stood still for it; the rest passed beside its work.
};

class Ranks {
 public:
  virtual ~Ranks() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;                           // R.
  virtual at::Device device() const { return at::kCPU; }  // Of the tensors of every operation.

  // Sum and maximum over ranks, element by element, in place. Every rank gets the same bits; the
  // order of the additions is the backend's and depends on R (ordered_sum.h where it must not).
  virtual absl::Status AllReduceSum(at::Tensor& tensor) = 0;
  virtual absl::Status AllReduceMax(at::Tensor& tensor) = 0;

  // The same sum, begun: gradient buckets overlap it with the backward pass.
  virtual std::unique_ptr<Pending> StartAllReduceSum(const at::Tensor& tensor) = 0;

  // output [n] <- part `rank()` of the sum of every rank's input [R n].
  virtual absl::Status ReduceScatterSum(const at::Tensor& input, at::Tensor& output) = 0;

  // output [R n] <- every rank's input [n], in rank order.
  virtual absl::Status AllGather(const at::Tensor& input, at::Tensor& output) = 0;

  virtual absl::Status Broadcast(at::Tensor& tensor, int root) = 0;  // In place.
  virtual std::unique_ptr<Pending> StartBroadcast(const at::Tensor& tensor, int root) = 0;
  virtual absl::Status Barrier() = 0;

  // Small host messages (a frozen manifest, hashes): every rank's bytes in rank order, on every
  // rank; lengths may differ. BroadcastBytes replaces `bytes` by the root's.
  virtual absl::StatusOr<std::vector<std::string>> GatherBytes(std::string_view mine) = 0;
  virtual absl::Status BroadcastBytes(std::string& bytes, int root) = 0;

  // Of this rank since the last call; nothing where nobody is to talk to.
  virtual CommunicationTime TakeCommunicationTime() { return {}; }

  // Ends what this rank has under way with kAborted, and everything it calls later. The other ranks
  // see this rank gone when its process ends, or run into their deadline.
  virtual void Abort(std::string_view reason) = 0;
};

// World of one: every operation is the identity.
std::unique_ptr<Ranks> MakeSingleRank();

}  // namespace oxbow::parallel
