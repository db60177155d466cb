// `oxbow import-config`: other projects' run files as runs of ours.
#pragma once

#include <CLI/CLI.hpp>

namespace oxbow::cli {

void AddImportConfig(CLI::App& app, int& exit_code);

}  // namespace oxbow::cli
