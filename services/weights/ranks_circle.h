// A circle over c10d: Gloo between host memories, NCCL between GPUs (core/parallel).
//
// Over Gloo chunks are sent from and received into where they live. Over NCCL each parcel passes
// through device memory of its size, on a stream of its own, so that neither side waits for what
// its GPU computes. Connections are those of the collective library: neither encrypted nor
// authenticated. Bytes are verified by whoever receives them.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "services/weights/circle.h"

namespace oxbow::weights {

struct RanksCircleOptions {
  std::string device = "cpu";  // This process's: what a circle on "cuda" uses here.
  absl::Duration join_within = absl::Seconds(5);
  absl::Duration silence = absl::Seconds(3);  // The longest one parcel may take.
};

JoinCircle JoinOverRanks(RanksCircleOptions options);

}  // namespace oxbow::weights
