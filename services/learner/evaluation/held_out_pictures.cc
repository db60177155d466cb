// SPDX-License-Identifier: Apache-2.0
#include "services/learner/evaluation/held_out_pictures.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdlib>
#include <system_error>

#include "absl/strings/str_format.h"
#include "base/checksum.h"
#include "base/file.h"
#include "base/log.h"
#include "base/statistics.h"
#include "base/status_macros.h"
#include "core/reward/likeness.h"
#include "core/reward/picture_statistics.h"
#include "core/reward/pillow_resize.h"
#include "core/reward/synthetic_task.h"
#include "io/image.h"
#include "metrics/step_metrics.h"

namespace oxbow::learner {
namespace {

constexpr size_t kFramesLookedAt = 4;

bool GreyIsDust(const v1::RewardConfig& reward) {
  std::vector<std::string> names(reward.observed().begin(), reward.observed().end());
  for (const v1::RewardTerm& term : reward.terms()) names.push_back(term.name());
  const reward::SyntheticTask* const task = reward::TaskOfRewards(names);
  return task != nullptr && task->grey_is_dust();
}

// Mean of 1 - |x| over pixels x = p / 127.5 - 1: measures grey dust, which scorers tolerate and
// people see.
// |x| is |2p - 255| / 255, whose sum is exact in integers.
double Speckle(const Pictures& pictures) {
  uint64_t sum = 0;
  uint64_t count = 0;
  for (const std::vector<Image8>& frames : pictures) {
    for (const Image8& frame : frames) {
      for (const uint8_t pixel : frame.pixels) {
        sum += static_cast<uint64_t>(std::abs(2 * pixel - 255));
      }
      count += frame.pixels.size();
    }
  }
  return 1 - static_cast<double>(sum) / (255 * static_cast<double>(count));
}

// The mean over frames that lie evenly in the video, its first among them.
double MeanOfFrames(const std::vector<Image8>& frames, double (*statistic)(const Image8&)) {
  const size_t looked_at = std::min(frames.size(), kFramesLookedAt);
  double sum = 0;
  for (size_t i = 0; i < looked_at; ++i) sum += statistic(frames[i * frames.size() / looked_at]);
  return sum / static_cast<double>(looked_at);
}

void AddStatistic(const Pictures& pictures, double (*statistic)(const Image8&),
                  const metric::StepMetric& mean, const metric::StepMetric& spread,
                  std::map<std::string, double>& metrics) {
  std::vector<double> values;
  for (const std::vector<Image8>& frames : pictures) {
    values.push_back(MeanOfFrames(frames, statistic));
  }
  metrics[mean] = Mean(values);
  metrics[spread] = StandardDeviation(values, 0);
}

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

flow::NoiseKey HeldOutKeyOf(uint64_t run_seed, size_t place, size_t prompts) {
  return {.run_seed = run_seed,
          .group = kEvaluationGroups + place % prompts,
          .sample = static_cast<uint32_t>(place / prompts)};
}

absl::StatusOr<HeldOutPictures> HeldOutPictures::Of(const std::vector<v1::Prompt>& prompts,
                                                    size_t images, size_t together,
                                                    ConditioningCache& conditioning) {
  HeldOutPictures pictures;
  for (size_t place = 0; place < images; ++place) {
    if (place % together == 0) {
      pictures.leases.emplace_back().set_first_place(static_cast<uint32_t>(place));
    }
    OXBOW_ASSIGN_OR_RETURN(const ConditioningCache::Entry* entry,
                           conditioning.Get(prompts[place % prompts.size()]));
    const flow::NoiseKey key = HeldOutKeyOf(/*run_seed=*/0, place, prompts.size());
    v1::Lease::Picture& picture = *pictures.leases.back().add_pictures();
    picture.mutable_conditioning()->set_sha256(entry->sent.sha256);
    picture.mutable_conditioning()->set_bytes(entry->sent.bytes->size());
    picture.set_noise_group(key.group);
    picture.set_noise_sample(key.sample);
    if (place < prompts.size()) pictures.conditioning.push_back(entry->sent.bytes);
  }
  return pictures;
}

void AddPictureNumbers(const v1::RewardConfig& reward, const Pictures& pictures,
                       std::map<std::string, double>& metrics) {
  if (GreyIsDust(reward)) {
    metrics[metric::kEvalSpeckleMean] = Speckle(pictures);
    return;
  }
  AddStatistic(pictures, reward::SaturatedShare, metric::kEvalSaturatedShare,
               metric::kEvalSaturatedShareStd, metrics);
  AddStatistic(pictures, reward::FineDetail, metric::kEvalFineDetail, metric::kEvalFineDetailStd,
               metrics);
  AddStatistic(pictures, reward::Sharpness, metric::kEvalSharpness, metric::kEvalSharpnessStd,
               metrics);
}

std::vector<Image8> SmallPictures(const Pictures& pictures) {
  std::vector<Image8> small;
  for (size_t i = 0; i < std::min(pictures.size(), kSmallPicturesMax); ++i) {
    const std::vector<Image8>& frames = pictures[i];
    small.push_back(reward::ResizeAsPillow(frames[frames.size() / 2], kSmallSide, kSmallSide,
                                           reward::ResizeKernel::kBilinear));
  }
  return small;
}

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
