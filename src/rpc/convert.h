// SPDX-License-Identifier: Apache-2.0
// Converts wire tensors to typed bytes and back; cuts large tensors into pieces and joins them.
//
// A message declares the tensors that follow (dtype and shape, no bytes). Their bytes come after it
// in pieces, tensor by tensor, in order. The assembler checks the declared size against a limit
// before it takes memory, and the received size against the declared one. No torch here.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "io/tensor_bytes.h"
#include "oxbow/v1/common.pb.h"

namespace oxbow::rpc {

v1::DType ToProto(io::DType dtype);

// kInvalidArgument for DTYPE_UNSPECIFIED and for numbers of a newer protocol.
absl::StatusOr<io::DType> DTypeFromProto(v1::DType dtype);

v1::Tensor ToProto(io::TensorBytes tensor);
v1::Tensor HeaderOf(const io::TensorBytes& tensor);  // Dtype and shape, without the bytes.

// Reads a tensor whose bytes are in the message. kInvalidArgument if they do not fill dtype and
// shape exactly.
absl::StatusOr<io::TensorBytes> TensorFromProto(const v1::Tensor& tensor);

// The same for bytes that came in pieces.
absl::StatusOr<io::TensorBytes> TensorFromProto(const v1::Tensor& header, std::string data);

// The number of bytes that dtype and shape declare; 0 for a tensor that was never set.
// kInvalidArgument for an unknown dtype, a bad shape, or a size over `bytes_max`.
absl::StatusOr<uint64_t> DeclaredBytes(const v1::Tensor& header, uint64_t bytes_max);

// A part of a conditioning, in the message that it is part of.
struct PartHeld {
  std::string name;
  const v1::Tensor* tensor;
};

// The parts that are set: "tokens" and "pooled", which have fields of their own, then the others.
std::vector<PartHeld> PartsOf(const v1::Conditioning& conditioning);
void SetPart(v1::Conditioning& conditioning, const std::string& name, v1::Tensor tensor);

// Calls `send(offset, piece)` for consecutive pieces of at most `chunk_bytes`; never for empty
// bytes. Stops and returns false when `send` returns false.
bool ForEachChunk(std::string_view bytes, uint64_t chunk_bytes,
                  const std::function<bool(uint64_t offset, std::string_view piece)>& send);

// Joins the pieces of one header's tensors. Not thread-safe.
class ChunkAssembler {
 public:
  // `headers` declare what follows. kInvalidArgument for a bad header;
  // kResourceExhausted if all of them together exceed `bytes_max`.
  static absl::StatusOr<ChunkAssembler> Start(const std::vector<v1::Tensor>& headers,
                                              uint64_t bytes_max);

  // Appends the next piece. kInvalidArgument, with nothing changed, if it is
  // empty, out of order, or longer than what is left of its tensor.
  absl::Status Add(uint32_t tensor, uint64_t offset, std::string_view piece);

  bool complete() const { return current_ == sizes_.size(); }
  uint64_t bytes_total() const { return bytes_total_; }

  // The bytes of each tensor, in header order. Requires complete().
  std::vector<std::string> Take() &&;

 private:
  explicit ChunkAssembler(std::vector<uint64_t> sizes);
  void SkipFinished();

  std::vector<uint64_t> sizes_;
  std::vector<std::string> data_;
  size_t current_ = 0;  // The tensor that is being filled.
  uint64_t bytes_total_ = 0;
};

// How much of a group a worker sends with its header, which no credit of the sink holds back:
// latent bytes of all samples together; more come in chunks.
inline constexpr uint64_t kHeaderLatentBytes = uint64_t{64} << 10;

// The sample that may become a replay entry, which has a picture in that header: the best fresh one
// (ties: the lowest index). Null if no fresh sample was scored.
const v1::Trajectory* BestFresh(const v1::Group& group);

}  // namespace oxbow::rpc
