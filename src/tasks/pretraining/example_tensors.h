// What the tensors of both synthetic tasks do alike: captions are parsed, examples rendered and
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

// A batch of examples: `render` gives the values of one image of `shape` [C, H, W], `token_ids`
// those of all captions.
template <typename Example, typename Render, typename TokenIds>
TrainingTensors StackExamples(const std::vector<Example>& batch, std::vector<int64_t> shape,
                              const Render& render, const TokenIds& token_ids) {
  const auto count = static_cast<int64_t>(batch.size());
  shape.insert(shape.begin(), count);
  TrainingTensors tensors{.images = at::empty(shape), .ids = {}, .times = at::empty({count})};
  auto* value = tensors.images.template data_ptr<float>();
  auto* time = tensors.times.template data_ptr<float>();
  std::vector<decltype(Example::caption)> captions;
  for (const Example& example : batch) {
    const auto rendered = render(example);
    value = std::copy(rendered.begin(), rendered.end(), value);
    *time++ = static_cast<float>(example.time);
    captions.push_back(example.caption);
  }
  tensors.ids = token_ids(captions);
  return tensors;
}

}  // namespace oxbow::tasks
