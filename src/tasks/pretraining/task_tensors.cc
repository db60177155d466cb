// SPDX-License-Identifier: Apache-2.0
#include "tasks/pretraining/task_tensors.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "tasks/plates.h"
#include "tasks/pretraining/example_tensors.h"

namespace oxbow::tasks {

double ValueOf(const std::vector<Measure>& report, std::string_view name) {
  for (const Measure& measure : report) {
    if (measure.name == name) return measure.value;
  }
  OXBOW_CHECK(false) << "no measure " << name;
  return 0;
}

absl::Status FitOrNot(bool fit, const char* wanted, const std::vector<Measure>& report) {
  if (fit) return absl::OkStatus();
  std::string text = absl::StrCat("the model is not fit to ship (wanted: ", wanted, "):");
  for (const Measure& measure : report) {
    absl::StrAppendFormat(&text, " %s %.4g", measure.name, measure.value);
  }
  return absl::FailedPreconditionError(text);
}

model::ClipTextParams SmallTextEncoder(int64_t begin, int64_t end, int64_t length) {
  model::ClipTextParams params;
  params.vocab_size = end + 1;
  params.hidden_size = 64;
  params.intermediate_size = 128;
  params.projection_dim = 64;
  params.num_hidden_layers = 2;
  params.num_attention_heads = 2;
  params.max_position_embeddings = length;
  params.hidden_act = "quick_gelu";
  params.bos_token_id = begin;
  params.eos_token_id = end;
  params.pad_token_id = end;
  return params;
}

absl::StatusOr<std::unique_ptr<TaskTensors>> TensorsOf(const SyntheticTask& task,
                                                       const std::vector<std::string>& prompts) {
  if (prompts.empty()) return absl::InvalidArgumentError("no prompts to pretrain on");
  if (task.name() == "digits") {
    OXBOW_ASSIGN_OR_RETURN(std::vector<Digits> parsed, ParseEach(prompts, &ParseDigitsPrompt));
    return DigitsTensors(std::move(parsed));
  }
  if (task.name() == "plates") {
    OXBOW_ASSIGN_OR_RETURN(std::vector<Digits> parsed, ParseEach(prompts, &ParsePlatePrompt));
    return PlatesTensors(std::move(parsed));
  }
  OXBOW_CHECK(task.name() == "clip") << task.name();
  OXBOW_ASSIGN_OR_RETURN(std::vector<ClipNumber> parsed, ParseEach(prompts, &ParseClipPrompt));
  return ClipTensors(std::move(parsed));
}

}  // namespace oxbow::tasks
