// SPDX-License-Identifier: Apache-2.0
// A broadcast group: the learner (rank 0) and some workers. The learner's bytes go to all of them
// at once.
//
// Its members are fixed when it is formed: when a worker comes or goes, a new one is needed. All
// members make the same calls in the same order. Errors are final, and BehindRanks of
// core/parallel/c10d_ranks.h reads from their status which members were behind. No torch here: the
// code behind JoinBroadcastGroup carries the bytes.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace oxbow::weights {

class BroadcastGroup {
 public:
  // A transfer under way.
  class Transfer {
   public:
    virtual ~Transfer() = default;
    virtual absl::Status Wait() = 0;  // At most until a deadline that counts from the start.
  };

  virtual ~BroadcastGroup() = default;

  // Replaces `text` by the text of rank 0.
  virtual absl::Status Broadcast(std::string& text) = 0;

  // Begins to fill `bytes` with the bytes of rank 0, which are only read there. Every rank gives
  // the same number of bytes, at least one. `owner` keeps them alive for as long as the transfer
  // may touch them, which after an error is longer than Wait.
  virtual std::unique_ptr<Transfer> Start(std::span<char> bytes,
                                          std::shared_ptr<const void> owner) = 0;

  // Returns when all members have called it.
  virtual absl::Status Barrier() = 0;

  // Ends the calls of this rank that are under way, and all later ones, with kAborted. Any thread
  // may call it.
  virtual void Abort(const std::string& reason) = 0;
};

struct BroadcastPlace {
  uint64_t broadcast_group = 0;  // Its number, unique in an epoch.
  int rank = 0;
  int size = 1;
  std::string device = "cpu";  // "cpu" or "cuda": Gloo or NCCL.
  std::string address;         // host:port of rank 0; on rank 0 a host that must reach it.
  // On rank 0: called with the address for the others as soon as they can come, before
  // JoinBroadcastGroup returns.
  std::function<void(const std::string& address)> on_listening;
  const std::atomic<bool>* cancelled = nullptr;  // Once true, joining ends with kCancelled.
};

// Waits until all members have come, at most for some seconds.
using JoinBroadcastGroup =
    std::function<absl::StatusOr<std::unique_ptr<BroadcastGroup>>(const BroadcastPlace& place)>;

// A broadcast group over c10d: Gloo between host memories, NCCL between GPUs (core/parallel).
//
// Over Gloo chunks are sent from their own memory and received into it. Over NCCL each piece
// passes through device memory of its size, on a stream of its own, so that neither side waits for
// other work of its GPU. Connections are those of the collective library: neither encrypted nor
// authenticated. The receiver verifies the bytes. (Library oxbow_weights_broadcast.)
struct RanksBroadcastGroupOptions {
  std::string device = "cpu";  // The GPU of this process, for broadcast groups on "cuda".
  absl::Duration join_within = absl::Seconds(5);
  absl::Duration silence = absl::Seconds(3);  // The longest one piece may take.
};

JoinBroadcastGroup JoinOverRanks(RanksBroadcastGroupOptions options);

}  // namespace oxbow::weights
