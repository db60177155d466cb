#include "tasks/pretraining/task_tensors.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "tasks/pretraining/compose_tensors.h"
#include "tasks/pretraining/digits_tensors.h"
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

absl::StatusOr<std::unique_ptr<TaskTensors>> TensorsOf(const SyntheticTask& task,
                                                       const std::vector<std::string>& prompts) {
  if (prompts.empty()) return absl::InvalidArgumentError("no prompts to pretrain on");
  if (task.name() == "digits") {
    OXBOW_ASSIGN_OR_RETURN(std::vector<Digits> parsed, ParseEach(prompts, &ParseDigitsPrompt));
    return DigitsTensors(std::move(parsed));
  }
  OXBOW_CHECK(task.name() == "compose") << task.name();
  OXBOW_ASSIGN_OR_RETURN(std::vector<Scene> parsed, ParseEach(prompts, &ParseScenePrompt));
  return ComposeTensors(std::move(parsed));
}

}  // namespace oxbow::tasks
