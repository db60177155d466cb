// A broadcast group over c10d: Gloo between host memories, NCCL between GPUs (core/parallel).
//
// Over Gloo chunks are sent from their own memory and received into it. Over NCCL each piece
// passes through device memory of its size, on a stream of its own, so that neither side waits for
// other work of its GPU. Connections are those of the collective library: neither encrypted nor
// authenticated. The receiver verifies the bytes.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "services/weights/broadcast_group.h"

namespace oxbow::weights {

struct RanksBroadcastGroupOptions {
  std::string device = "cpu";  // The GPU of this process, for broadcast groups on "cuda".
  absl::Duration join_within = absl::Seconds(5);
  absl::Duration silence = absl::Seconds(3);  // The longest one piece may take.
};

JoinBroadcastGroup JoinOverRanks(RanksBroadcastGroupOptions options);

}  // namespace oxbow::weights
