// Costs to start from: those of one measured run, and assumptions for runs that were never measured
// with this program, with their arithmetic. The assumptions show what breaks first, not how long a
// step takes; `oxbow simulate --from-run` measures.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "simulate/run_model.h"

namespace oxbow::simulate {

struct Preset {
  std::string name;
  std::string meaning;     // One line.
  std::string assumption;  // Where the times come from.
  // Costs, batch sizes and ranks. Weight fan-out, lease time and the stragglers' rule have their
  // defaults elsewhere (configs/defaults.yaml); the caller sets them.
  RunModel model;
};

const std::vector<Preset>& Presets();
std::optional<Preset> FindPreset(const std::string& name);

}  // namespace oxbow::simulate
