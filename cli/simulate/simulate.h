// `oxbow simulate`: what a run would do with more workers, staleness, failures; in virtual time.
#pragma once

#include <CLI/CLI.hpp>

namespace oxbow::cli {

void AddSimulate(CLI::App& app, int& exit_code);

}  // namespace oxbow::cli
