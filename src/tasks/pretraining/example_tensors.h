// SPDX-License-Identifier: Apache-2.0
// Work on tensors that both synthetic tasks do alike: captions are parsed, examples rendered and
// stacked.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "tasks/pretraining/task_tensors.h"

namespace oxbow::tasks {

// Parses prompts as captions of a task. Returns the errors of `parse`.
template <typename Caption>
absl::StatusOr<std::vector<Caption>> ParseEach(const std::vector<std::string>& prompts,
                                               absl::StatusOr<Caption> (*parse)(std::string_view)) {
  std::vector<Caption> captions;
  for (const std::string& prompt : prompts) {
    OXBOW_ASSIGN_OR_RETURN(Caption caption, parse(prompt));
    captions.push_back(std::move(caption));
  }
  return captions;
}

// The prompts of captions.
template <typename Caption>
std::vector<std::string> PromptsOf(const std::vector<Caption>& captions,
                                   std::string (*prompt)(const Caption&)) {
  std::vector<std::string> prompts;
  for (const Caption& caption : captions) prompts.push_back(prompt(caption));
  return prompts;
}

// A batch of examples: `render` gives the values of one image of `shape` [C, H, W] or of one video
// of [C, F, H, W], `prompt` that of a caption.
template <typename Example, typename Render, typename Prompt>
TrainingTensors StackExamples(const std::vector<Example>& batch, std::vector<int64_t> shape,
                              const Render& render, const Prompt& prompt) {
  const auto count = static_cast<int64_t>(batch.size());
  shape.insert(shape.begin(), count);
  TrainingTensors tensors{.images = at::empty(shape), .captions = {}, .times = at::empty({count})};
  auto* value = tensors.images.template data_ptr<float>();
  auto* time = tensors.times.template data_ptr<float>();
  for (const Example& example : batch) {
    const auto rendered = render(example);
    value = std::copy(rendered.begin(), rendered.end(), value);
    *time++ = static_cast<float>(example.time);
    tensors.captions.push_back(prompt(example.caption));
  }
  return tensors;
}

}  // namespace oxbow::tasks
