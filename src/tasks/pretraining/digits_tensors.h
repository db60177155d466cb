// The synthetic task `digits` as tensors, from which models/digits is trained.
#pragma once

#include <memory>
#include <vector>

#include "tasks/digits.h"
#include "tasks/pretraining/task_tensors.h"

namespace oxbow::tasks {

// Token ids [N, 6] int64, as the tokenizer of models/digits gives them: begin, "text", one per
// digit, end.
at::Tensor DigitsTokenIds(const std::vector<Digits>& prompts);

// Requires prompts.
std::unique_ptr<TaskTensors> DigitsTensors(std::vector<Digits> prompts);

}  // namespace oxbow::tasks
