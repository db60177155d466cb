// The synthetic task `digits` as tensors, from which models/digits is trained.
#pragma once

#include <memory>
#include <vector>

#include "core/pretrain/task_tensors.h"
#include "core/task/digits.h"

namespace oxbow::task {

// Token ids [N, 6] int64, as the tokenizer of models/digits gives them: begin, "text", one per
// digit, end.
at::Tensor DigitsTokenIds(const std::vector<Digits>& prompts);

// Requires prompts.
std::unique_ptr<TaskTensors> DigitsTensors(std::vector<Digits> prompts);

}  // namespace oxbow::task
