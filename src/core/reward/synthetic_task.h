// SPDX-License-Identifier: Apache-2.0
// Synthetic tasks: worlds of pictures that a program itself can read. A program has those that were
// added to it (examples/worlds adds three to each program that links it); code here works with any
// of them: it lists their rewards, measures a model, or marks right images.
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
#include "core/reward/scorer.h"

namespace oxbow::reward {

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

struct TaskReward {
  std::string name;
  std::unique_ptr<Scorer> (*make)();
};

class SyntheticTask {
 public:
  virtual ~SyntheticTask() = default;
  virtual std::string name() const = 0;  // "digits"
  virtual ImageFormat format() const = 0;
  // Rows of the table of rewards (services/reward/scorer_table.h); its report measures them, too.
  virtual std::vector<TaskReward> rewards() const = 0;
  // The one of them that says which of two equally right layouts a picture has, which is no
  // quality; "" if none does.
  virtual std::string layout_reward() const = 0;
  // Whether a clean picture of it has black, white and full colours alone, so that grey is dust.
  virtual bool grey_is_dust() const = 0;
  virtual bool HasPrompt(const std::string& prompt) const = 0;
  virtual std::unique_ptr<TaskReport> NewReport() const = 0;
  // Whether an image shows what its prompt asks for. Errors as TaskReport::Add.
  virtual absl::StatusOr<bool> IsRight(const std::string& prompt,
                                       std::span<const uint8_t> pixels) const = 0;
};

// From now on the program has this task. Before main, since the table of rewards is made once.
void AddTask(const SyntheticTask& task);
const std::vector<const SyntheticTask*>& AllTasks();

bool HasReward(const SyntheticTask& task, std::string_view reward);

// The task whose prompts have this form; null if there is none.
const SyntheticTask* TaskOfPrompt(const std::string& prompt);

// The task that one of these rewards belongs to; null if none does: they may be of photographs.
const SyntheticTask* TaskOfRewards(std::span<const std::string> rewards);

// Whether a reward of some task says which layout a picture has: its mean shows variety.
bool SaysLayout(std::string_view reward);

}  // namespace oxbow::reward
