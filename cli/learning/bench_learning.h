// `oxbow bench learning`: trains every recipe of a comparison with every seed and shows which one
// learns fastest.
#pragma once

#include <CLI/CLI.hpp>

namespace oxbow::cli {

void AddBench(CLI::App& app, int& exit_code);

}  // namespace oxbow::cli
