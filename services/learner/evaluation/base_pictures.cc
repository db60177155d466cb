// SPDX-License-Identifier: Apache-2.0
#include "services/learner/evaluation/base_pictures.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/checksum.h"
#include "base/file.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "core/reward/likeness.h"
#include "io/image.h"
#include "services/learner/evaluation/picture_numbers.h"

namespace oxbow::learner {
namespace {

constexpr size_t kColumns = 16;
constexpr double kAlike = 1e-3;  // Black to white is 1.

std::string IdentityOf(const std::vector<std::string>& prompts) {
  uint32_t crc = 0;
  for (const std::string& prompt : prompts) crc = ExtendCrc32c(crc, prompt + '\n');
  return absl::StrFormat("%08x", crc);
}

// Where row `row` of square `i` begins in the pixels of the whole.
size_t PlaceOf(size_t i, size_t row, size_t channels) {
  const size_t width = kColumns * kSmallSide;
  return ((i / kColumns * kSmallSide + row) * width + i % kColumns * kSmallSide) * channels;
}

Image8 Together(const std::vector<Image8>& squares) {
  const auto channels = static_cast<size_t>(squares.front().channels);
  const size_t rows = (squares.size() + kColumns - 1) / kColumns;
  Image8 whole{static_cast<int>(kColumns) * kSmallSide,
               static_cast<int>(rows) * kSmallSide,
               squares.front().channels,
               {}};
  whole.pixels.resize(static_cast<size_t>(whole.width) * static_cast<size_t>(whole.height) *
                      channels);
  const size_t bytes = kSmallSide * channels;
  for (size_t i = 0; i < squares.size(); ++i) {
    for (size_t row = 0; row < kSmallSide; ++row) {
      std::copy_n(&squares[i].pixels[row * bytes], bytes, &whole.pixels[PlaceOf(i, row, channels)]);
    }
  }
  return whole;
}

// The first `count` squares; none if the picture has not so many.
std::vector<Image8> Apart(const Image8& whole, size_t count) {
  const auto channels = static_cast<size_t>(whole.channels);
  const size_t rows = (count + kColumns - 1) / kColumns;
  if (whole.width != static_cast<int>(kColumns) * kSmallSide ||
      whole.height != static_cast<int>(rows) * kSmallSide) {
    return {};
  }
  std::vector<Image8> squares;
  const size_t bytes = kSmallSide * channels;
  for (size_t i = 0; i < count; ++i) {
    Image8& square = squares.emplace_back(Image8{kSmallSide, kSmallSide, whole.channels, {}});
    for (size_t row = 0; row < kSmallSide; ++row) {
      const uint8_t* const from = &whole.pixels[PlaceOf(i, row, channels)];
      square.pixels.insert(square.pixels.end(), from, from + bytes);
    }
  }
  return squares;
}

// The mean distance of each picture of `a` to that of `b` which stands `shift` places behind it.
std::optional<double> MeanDistance(const std::vector<Image8>& a, const std::vector<Image8>& b,
                                   size_t shift) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const Image8& other = b[(i + shift) % b.size()];
    if (a[i].pixels.size() != other.pixels.size()) return std::nullopt;
    sum += reward::DistanceOf({a[i]}, {other});
  }
  return sum / static_cast<double>(a.size());
}

absl::StatusOr<std::vector<Image8>> Read(const std::filesystem::path& path, size_t count) {
  OXBOW_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
  OXBOW_ASSIGN_OR_RETURN(const Image8 whole, io::DecodePng(bytes));
  return Apart(whole, count);
}

absl::Status Write(const std::filesystem::path& path, const std::vector<Image8>& squares) {
  OXBOW_RETURN_IF_ERROR(MakeDirectories(path.parent_path(), 0));
  return WriteFileAtomically(path, io::EncodePng(Together(squares)));
}

}  // namespace

std::optional<double> BasePictures::DistanceAt(uint64_t step,
                                               const std::vector<std::string>& prompts,
                                               const std::vector<Image8>& small) {
  if (small.empty()) return std::nullopt;
  const std::string identity = IdentityOf(prompts);
  const std::filesystem::path path = run_dir_ / "samples" / ("base_" + identity + ".png");
  if (step == 0) {
    base_ = small;
    identity_ = identity;
    if (const absl::Status written = Write(path, base_); !written.ok()) {
      OXBOW_LOG(Warning) << "pictures of step 0 were not kept"
                         << Field("error", std::string(written.message()));
    }
  } else if (identity_ != identity) {
    base_ = Read(path, small.size()).value_or(std::vector<Image8>());
    identity_ = identity;
  }
  if (base_.size() != small.size()) return std::nullopt;
  const auto spread = MeanDistance(base_, base_, 1), moved = MeanDistance(small, base_, 0);
  if (!spread || !moved || *spread < kAlike) return std::nullopt;
  return *moved / *spread;
}

}  // namespace oxbow::learner
