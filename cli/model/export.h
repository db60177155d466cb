// `oxbow export RUN_DIR --format F`: a run's weights as files that other tools load.
#pragma once

namespace CLI {
class App;
}  // namespace CLI

namespace oxbow::cli {

// Adds the subcommand. When it was chosen, parsing sets `exit_code` (base/exit_code.h), which
// outlives `app`.
void AddExport(CLI::App& app, int& exit_code);

}  // namespace oxbow::cli
