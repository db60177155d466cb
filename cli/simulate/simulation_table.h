// SPDX-License-Identifier: Apache-2.0
// Output of `oxbow simulate`: one row per simulated run, for people, for programs, as a drawing.
#pragma once

#include <string>
#include <vector>

#include "simulate/run_model.h"
#include "simulate/simulation.h"

namespace oxbow::cli {

struct SimulatedRun {
  simulate::RunModel model;
  simulate::Outcome outcome;
};

std::string SimulationTable(const std::vector<SimulatedRun>& runs);

// One JSON object per line.
std::string SimulationJson(const std::vector<SimulatedRun>& runs);

// A standalone SVG: learner utilisation over workers (logarithmic), one line for each combination
// of the other settings.
std::string UtilisationSvg(const std::vector<SimulatedRun>& runs, const std::string& title);

}  // namespace oxbow::cli
