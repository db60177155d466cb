// SPDX-License-Identifier: Apache-2.0
// For any bytes: a PNG is refused, or it gives a valid image that survives a write and a read. The
// checksums of its chunks are written first, because mutations would never get past them.
#include <string>

#include "base/check.h"
#include "io/image.h"
#include "tests/fuzz/bytes_input.h"
#include "tests/fuzz/png_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace oxbow;  // NOLINT: a file of one function.
  constexpr int64_t kPixelsMax = 1 << 16;
  const auto image =
      io::DecodePng(fuzz::WithChecksums(std::string(fuzz::Text(data, size))), kPixelsMax);
  if (!image.ok()) {
    OXBOW_CHECK(absl::IsInvalidArgument(image.status()) || absl::IsDataLoss(image.status()))
        << image.status().ToString();
    return 0;
  }
  OXBOW_CHECK(io::IsValid(*image) && int64_t{image->width} * image->height <= kPixelsMax);
  const auto again = io::DecodePng(io::EncodePng(*image));
  OXBOW_CHECK(again.ok() && again->pixels == image->pixels) << again.status().ToString();
  return 0;
}
