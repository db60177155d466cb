// Translates the sections of Flow-Factory's YAML that define sampling and training: train,
// scheduler and optimizers.
#pragma once

#include <string>
#include <vector>

#include "config/import/translation.h"

namespace oxbow::config {

void TranslateMethod(Translation& t);

// Height and width from a section with `resolution`, `height` and `width`.
std::vector<std::string> FlowFactorySize(const Translation& t, const std::string& section);

}  // namespace oxbow::config
