// `oxbow validate`: everything that can be known about a run before it starts.
#pragma once

#include <CLI/CLI.hpp>

namespace oxbow::cli {

void AddValidate(CLI::App& app, int& exit_code);

}  // namespace oxbow::cli
