// `oxbow pretrain`: makes the embedded model from nothing.
#pragma once

#include <CLI/CLI.hpp>

namespace oxbow::cli {

// Adds the subcommand. When it is chosen its callback runs it and sets `exit_code`, which outlives
// the parse.
void AddPretrain(CLI::App& app, int& exit_code);

}  // namespace oxbow::cli
