// The synthetic task `compose` as tensors, from which models/compose is trained.
#pragma once

#include <memory>
#include <vector>

#include "core/pretrain/world_tensors.h"
#include "core/task/compose.h"

namespace oxbow::task {

// Requires prompts.
std::unique_ptr<WorldTensors> ComposeTensors(std::vector<Scene> prompts);

}  // namespace oxbow::task
