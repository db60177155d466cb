// `oxbow config show`: a run's configuration as it would be used.
#pragma once

#include <CLI/CLI.hpp>

namespace oxbow::cli {

void AddConfig(CLI::App& app, int& exit_code);

}  // namespace oxbow::cli
