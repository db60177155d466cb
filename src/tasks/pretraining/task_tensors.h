// SPDX-License-Identifier: Apache-2.0
// A synthetic task for pretraining: its networks, and its prompts and images as tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/model/clip_text.h"
#include "core/model/parameters.h"
#include "core/model/sd3.h"
#include "tasks/pretraining_batch.h"
#include "tasks/synthetic_task.h"

namespace oxbow::tasks {

struct TrainingTensors {
  at::Tensor images;                  // [B, C, H, W] or [B, C, F, H, W] float32, -1 to 1.
  std::vector<std::string> captions;  // [B]
  at::Tensor times;                   // [B] float32, noise levels.
};

class TaskTensors {
 public:
  virtual ~TaskTensors() = default;

  virtual const SyntheticTask& synthetic_task() const = 0;
  // The networks of the task's own model; another transformer takes a text encoder from here, too.
  // None: the task's model has an exported graph, in models/NAME/transformer.
  virtual std::optional<model::Sd3Params> transformer() const = 0;
  virtual model::ClipTextParams text() const = 0;
  // The merges of the CLIP tokenizer, in order.
  virtual std::vector<std::string> merges() const = 0;
  // The values with which the shipped model was made.
  virtual double caption_noise() const = 0;
  virtual int64_t steps() const = 0;

  // The training prompts.
  virtual std::vector<std::string> prompts() const = 0;
  // Token ids [N, S] of any prompts, for CLIP. kInvalidArgument names a prompt of another task.
  virtual absl::StatusOr<at::Tensor> TokenIds(const std::vector<std::string>& prompts) const = 0;

  // The examples of one step; captions are drawn from the training prompts.
  virtual TrainingTensors Batch(const BatchOptions& options, int64_t step) const = 0;

  // Checks whether a base model is fit to ship. kFailedPrecondition gives all measured values.
  virtual absl::Status CheckBaseModel(const std::vector<Measure>& report) const = 0;
};

// The value of a measure. Requires a measure of this name.
double ValueOf(const std::vector<Measure>& report, std::string_view name);
// kFailedPrecondition with all measures unless `fit`.
absl::Status FitOrNot(bool fit, const char* wanted, const std::vector<Measure>& report);

// The text encoder of an embedded model: two small layers over `length` tokens. `end` is the last
// id of the vocabulary and pads the prompt.
model::ClipTextParams SmallTextEncoder(int64_t begin, int64_t end, int64_t length);

// Token ids [N, 6] int64, as the tokenizer of models/digits gives them: begin, "text", one per
// digit, end.
at::Tensor DigitsTokenIds(const std::vector<Digits>& prompts);

// Token ids [N, 8] int64 as that of models/plates: begin, "text", a quotation mark, one per digit,
// a quotation mark, end.
at::Tensor PlatesTokenIds(const std::vector<Digits>& prompts);

// The tasks as tensors, from which models/digits, models/plates and models/clip are trained. They
// require prompts.
std::unique_ptr<TaskTensors> DigitsTensors(std::vector<Digits> prompts);
std::unique_ptr<TaskTensors> PlatesTensors(std::vector<Digits> prompts);
std::unique_ptr<TaskTensors> ClipTensors(std::vector<ClipNumber> prompts);

// Tensors with these training prompts. kInvalidArgument if there are none, or if one is of another
// task.
absl::StatusOr<std::unique_ptr<TaskTensors>> TensorsOf(const SyntheticTask& task,
                                                       const std::vector<std::string>& prompts);

}  // namespace oxbow::tasks
