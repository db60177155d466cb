// Costs of runs that nobody has measured with this program: assumptions with their arithmetic, to
// see what breaks first, not what a step will take. `oxbow simulate --from-run` has measured ones.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/simulate/run_model.h"

namespace oxbow::simulate {

struct Preset {
  std::string name;
  std::string meaning;     // One line.
  std::string assumption;  // Where the times come from.
  RunModel model;          // Costs, batch sizes and ranks; the rest as RunModel has it.
};

const std::vector<Preset>& Presets();
std::optional<Preset> FindPreset(const std::string& name);

}  // namespace oxbow::simulate
