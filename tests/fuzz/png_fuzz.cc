// For any bytes: a PNG is refused, or it gives a valid image that survives a write and a read. The
// checksums of its chunks are written first, because mutations would never get past them.
#include <zlib.h>

#include <string>

#include "base/check.h"
#include "io/image.h"
#include "tests/fuzz/bytes_input.h"

namespace {

// length: u32 | type: 4 bytes | data | CRC-32 of type and data: u32, after a signature of 8 bytes.
std::string WithChecksums(std::string png) {
  constexpr size_t kSignature = 8, kAround = 12;
  const auto byte = [&](size_t at) { return static_cast<size_t>(static_cast<uint8_t>(png[at])); };
  for (size_t at = kSignature; at + kAround <= png.size();) {
    const size_t length = byte(at) << 24 | byte(at + 1) << 16 | byte(at + 2) << 8 | byte(at + 3);
    if (length > png.size() - at - kAround) break;
    const uLong sum = crc32(0, reinterpret_cast<const Bytef*>(png.data() + at + 4),
                            static_cast<uInt>(length + 4));
    for (size_t i = 0; i < 4; ++i) {
      png[at + 8 + length + i] = static_cast<char>(sum >> (24 - 8 * i) & 0xff);
    }
    at += kAround + length;
  }
  return png;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace oxbow;  // NOLINT: a file of one function.
  constexpr int64_t kPixelsMax = 1 << 16;
  const auto image = io::DecodePng(WithChecksums(std::string(fuzz::Text(data, size))), kPixelsMax);
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
