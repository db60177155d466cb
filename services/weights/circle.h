// A circle: the learner (rank 0) and some workers, to all of which the learner's bytes go at once.
//
// Its members are fixed when it is formed; whoever comes or goes makes a new one necessary. All of
// them make the same calls in the same order. Errors are final, and their status may name the
// members that were behind (core/parallel/behind_ranks.h). No torch here: what carries the bytes is
// behind JoinCircle.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace oxbow::weights {

class Circle {
 public:
  // Bytes on their way.
  class Transit {
   public:
    virtual ~Transit() = default;
    virtual absl::Status Wait() = 0;  // At most until a deadline that counts from the start.
  };

  virtual ~Circle() = default;

  // Replaces `text` by rank 0's.
  virtual absl::Status Tell(std::string& text) = 0;

  // Begins to fill `bytes` with rank 0's, which are only read. As many on every rank, at least one.
  // `owner` keeps them alive for as long as anything may touch them, which after an error is longer
  // than Wait.
  virtual std::unique_ptr<Transit> Start(std::span<char> bytes,
                                         std::shared_ptr<const void> owner) = 0;

  // Returns when everybody has come here.
  virtual absl::Status Meet() = 0;

  // Ends what this rank has under way, and all it calls later, with kAborted. From any thread.
  virtual void Abort(const std::string& reason) = 0;
};

struct CirclePlace {
  uint64_t circle = 0;  // Its number; no two of an epoch have the same.
  int rank = 0;
  int size = 1;
  std::string device = "cpu";  // "cpu" or "cuda": what carries the bytes.
  std::string address;         // host:port where rank 0 waits; on rank 0 a host that must reach it.
  // On rank 0: told `address` for the others as soon as they can come, before JoinCircle returns.
  std::function<void(const std::string& address)> on_listening;
  const std::atomic<bool>* cancelled = nullptr;  // True: gives up, with kCancelled.
};

// Waits until all members have come, at most for some seconds.
using JoinCircle = std::function<absl::StatusOr<std::unique_ptr<Circle>>(const CirclePlace& place)>;

}  // namespace oxbow::weights
