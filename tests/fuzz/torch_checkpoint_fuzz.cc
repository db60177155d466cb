// SPDX-License-Identifier: Apache-2.0
// For any bytes: a file of torch.save is refused with one line, or its tensors can be read and have
// the bytes that their shapes say.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "io/torch_checkpoint.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace oxbow::io;  // NOLINT: a file of one function.
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto checkpoint = TorchCheckpoint::Parse(bytes, "fuzz");
  if (!checkpoint.ok()) {
    const absl::Status& status = checkpoint.status();
    OXBOW_CHECK(status.code() == absl::StatusCode::kDataLoss ||
                status.code() == absl::StatusCode::kFailedPrecondition)
        << status.ToString();
    OXBOW_CHECK(status.message().find('\n') == std::string_view::npos) << status.ToString();
    return 0;
  }
  uint64_t total = 0;
  for (const auto& [name, header] : checkpoint->headers()) {
    const std::string tensor = checkpoint->Read(name);
    OXBOW_CHECK(tensor.size() == *ByteSize(header.dtype, header.shape)) << name;
    total += tensor.size();
  }
  OXBOW_CHECK(total <= kSharedStoragesMax * size) << total << " bytes of tensors in " << size;
  return 0;
}
