// SPDX-License-Identifier: Apache-2.0
// A ReadResponse whose latents are sent without a copy (rpc/slices.h).
//
// The latents stand behind the other fields of what they belong to, as a second occurrence of the
// messages that they lie in: protobuf merges the two. They are slices of the memory that they were
// read into.
#pragma once

#include <vector>

#include "oxbow/v1/replay_buffer.pb.h"
#include "rpc/slices.h"
#include "rpc/stream.h"
#include "services/buffer/latent_pieces.h"

namespace oxbow::buffer {

struct ReadAnswer {
  v1::ReadResponse message;  // With latents: a chunk, or one whole entry.
  LatentPieces latents;

  std::vector<grpc::Slice> Slices() const;
};

using ReadStream = rpc::Stream<v1::ReadRequest, ReadAnswer>;

}  // namespace oxbow::buffer
