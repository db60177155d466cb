// SPDX-License-Identifier: Apache-2.0
// For any bytes: a film is refused with one line, or it has valid frames of one size and no more
// pixels than are allowed, and survives a write and a read. A PNG that is not animated is a film of
// its picture. The checksums of its chunks are written first.
#include <string>

#include "base/check.h"
#include "io/film.h"
#include "io/image.h"
#include "tests/fuzz/bytes_input.h"
#include "tests/fuzz/png_input.h"

namespace {

constexpr int64_t kPixelsMax = 1 << 14;

void CheckFilm(const oxbow::io::Film& film) {
  using namespace oxbow;  // NOLINT: one function.
  OXBOW_CHECK(!film.frames.empty());
  int64_t pixels = 0;
  for (const Image8& frame : film.frames) {
    const Image8& first = film.frames.front();
    OXBOW_CHECK(io::IsValid(frame) && frame.width == first.width && frame.height == first.height &&
                frame.channels == first.channels)
        << frame.width << "x" << frame.height << "x" << frame.channels;
    pixels += int64_t{frame.width} * frame.height;
  }
  OXBOW_CHECK(pixels <= kPixelsMax) << pixels;
  const auto again = io::DecodeFilm(io::EncodeFilm(film), kPixelsMax);
  OXBOW_CHECK(again.ok() && again->frames == film.frames) << again.status().ToString();
  OXBOW_CHECK(film.frames.size() == 1 || again->time == film.time);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace oxbow;  // NOLINT: a file of one function.
  const std::string bytes = fuzz::WithChecksums(std::string(fuzz::Text(data, size)));
  for (const auto& film :
       {io::DecodeFilm(bytes, kPixelsMax), io::DecodePictureOrFilm(bytes, kPixelsMax)}) {
    if (film.ok()) {
      CheckFilm(*film);
      continue;
    }
    OXBOW_CHECK(absl::IsInvalidArgument(film.status()) || absl::IsDataLoss(film.status()))
        << film.status().ToString();
    OXBOW_CHECK(film.status().message().find('\n') == std::string_view::npos)
        << film.status().ToString();
  }
  return 0;
}
