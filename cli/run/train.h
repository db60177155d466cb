// `oxbow train`: a complete run on this machine, from one YAML file to a report.
#pragma once

#include <CLI/CLI.hpp>

namespace oxbow::cli {

void AddTrain(CLI::App& app, int& exit_code);

}  // namespace oxbow::cli
