// The synthetic task `compose` as tensors, from which models/compose is trained.
#pragma once

#include <memory>
#include <vector>

#include "tasks/compose.h"
#include "tasks/pretraining/task_tensors.h"

namespace oxbow::tasks {

// Requires prompts.
std::unique_ptr<TaskTensors> ComposeTensors(std::vector<Scene> prompts);

}  // namespace oxbow::tasks
