// The sections of Flow-Factory's YAML that say how pictures are sampled and trained on: train,
// scheduler and optimizers.
#pragma once

#include <string>
#include <vector>

#include "config/import/translation.h"

namespace oxbow::config {

void TranslateMethod(Translation& t);

// Height and width of a section with `resolution`, `height` and `width`.
std::vector<std::string> FlowFactorySize(const Translation& t, const std::string& section);

}  // namespace oxbow::config
