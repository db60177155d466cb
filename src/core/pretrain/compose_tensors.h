// The synthetic task `compose` as tensors, from which models/compose is trained.
#pragma once

#include <memory>
#include <vector>

#include "core/pretrain/task_tensors.h"
#include "core/task/compose.h"

namespace oxbow::task {

// Requires prompts.
std::unique_ptr<TaskTensors> ComposeTensors(std::vector<Scene> prompts);

}  // namespace oxbow::task
