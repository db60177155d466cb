// SPDX-License-Identifier: Apache-2.0
// A ReadResponse whose latents are sent without a copy.
//
// On the wire it is the message of replay_buffer.proto. The latents stand behind the other fields
// of what they belong to, as a second occurrence of the messages that they lie in: protobuf merges
// the two. They are slices of the memory that they were read into.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include "oxbow/v1/replay_buffer.pb.h"
#include "rpc/stream.h"
#include "services/buffer/latent_pieces.h"

namespace oxbow::buffer {

struct ReadAnswer {
  v1::ReadResponse message;  // With latents: a chunk, or one whole entry.
  LatentPieces latents;
};

using ReadStream = rpc::Stream<v1::ReadRequest, ReadAnswer>;

}  // namespace oxbow::buffer

template <>
class grpc::SerializationTraits<oxbow::buffer::ReadAnswer> {
 public:
  static grpc::Status Serialize(const oxbow::buffer::ReadAnswer& answer, grpc::ByteBuffer* buffer,
                                bool* own_buffer);
};
