// SPDX-License-Identifier: Apache-2.0
// The synthetic tasks, for code that works with any of them: it measures a model, or marks right
// images.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/image8.h"

namespace oxbow::tasks {

// Pictures, or videos of some frames.
struct ImageFormat {
  int width = 0;
  int height = 0;
  int channels = 0;
  int frames = 0;  // 0: pictures.

  size_t bytes() const {
    return static_cast<size_t>(width) * height * channels * (frames == 0 ? 1 : frames);
  }
};

struct Measure {
  std::string name;  // "reward", "strict", ...
  double value = 0;
};

// The pixels of a picture, or of the frames of a video one after another: what a task reads.
std::vector<uint8_t> PixelsOf(const std::vector<Image8>& frames);

// Counts images one by one.
class TaskReport {
 public:
  virtual ~TaskReport() = default;

  // `pixels`: 8-bit, channels interleaved, frame after frame, in the task's format.
  // kInvalidArgument if the prompt is of another task, kFailedPrecondition if the image has another
  // size.
  virtual absl::Status Add(const std::string& prompt, std::span<const uint8_t> pixels) = 0;
  // Measures of the images so far; "images" first, then "reward".
  virtual std::vector<Measure> Report() const = 0;
};

class SyntheticTask {
 public:
  virtual ~SyntheticTask() = default;
  virtual std::string name() const = 0;  // "digits"
  virtual ImageFormat format() const = 0;
  // Names of the rewards that its report measures, too.
  virtual std::vector<std::string> rewards() const = 0;
  // The one of them that says which of two equally right layouts a picture has, which is no
  // quality; "" if none does.
  virtual std::string layout_reward() const = 0;
  // Whether a clean picture of it has black, white and full colours alone, so that grey is dust.
  virtual bool grey_is_dust() const = 0;
  virtual std::unique_ptr<TaskReport> NewReport() const = 0;
  // Whether an image shows what its prompt asks for. Errors as TaskReport::Add.
  virtual absl::StatusOr<bool> IsRight(const std::string& prompt,
                                       std::span<const uint8_t> pixels) const = 0;
};

// The task whose prompts have this form; null if there is none.
const SyntheticTask* TaskOfPrompt(const std::string& prompt);

// The task that one of these rewards belongs to; null if none does: they may be of photographs.
const SyntheticTask* TaskOfRewards(std::span<const std::string> rewards);

// Whether a reward of some task says which layout a picture has: its mean shows variety.
bool SaysLayout(std::string_view reward);

}  // namespace oxbow::tasks
