// SPDX-License-Identifier: Apache-2.0
// For any tensor headers and pieces: the assembler takes them in order or refuses them, and what
// it hands out has the declared sizes.
#include <google/protobuf/stubs/logging.h>

#include "base/check.h"
#include "oxbow/v1/common.pb.h"
#include "rpc/convert.h"
#include "tests/fuzz/bytes_input.h"

namespace {

uint32_t Number(std::string_view& bytes) {
  uint32_t number = 0;
  for (int i = 0; i < 2 && !bytes.empty(); ++i, bytes.remove_prefix(1)) {
    number |= static_cast<uint32_t>(static_cast<uint8_t>(bytes.front())) << (8 * i);
  }
  return number;
}

}  // namespace

// The first message is a Trajectory, whose latents are a header; each other is a piece: tensor and
// offset, two bytes each, then the bytes.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace oxbow;  // NOLINT: a file of one function.
  [[maybe_unused]] static const auto loud = google::protobuf::SetLogHandler(nullptr);
  constexpr uint64_t kBytesMax = 1 << 16;
  const auto messages = fuzz::Messages(fuzz::Text(data, size));
  if (messages.empty()) return 0;
  v1::Trajectory trajectory;
  if (!trajectory.ParseFromArray(messages[0].data(), static_cast<int>(messages[0].size())))
    return 0;
  (void)rpc::TensorFromProto(trajectory.latents());
  auto assembler =
      rpc::ChunkAssembler::Start({trajectory.latents(), trajectory.latents()}, kBytesMax);
  if (!assembler.ok()) return 0;
  OXBOW_CHECK(assembler->bytes_total() <= kBytesMax);
  for (size_t i = 1; i < messages.size() && !assembler->complete(); ++i) {
    std::string_view piece = messages[i];
    const uint32_t tensor = Number(piece), offset = Number(piece);
    (void)assembler->Add(tensor, offset, piece);
  }
  if (!assembler->complete()) return 0;
  uint64_t bytes = 0;
  const uint64_t total = assembler->bytes_total();
  for (const std::string& tensor : (*std::move(assembler)).Take()) bytes += tensor.size();
  OXBOW_CHECK(bytes == total);
  return 0;
}
