// `oxbow report RUN_DIR`: writes report.html again from the current files of the run.
#pragma once

namespace CLI {
class App;
}  // namespace CLI

namespace oxbow::cli {

// Adds the subcommand. If it is chosen, parsing sets `exit_code` (base/exit_code.h), which must
// outlive `app`.
void AddReport(CLI::App& app, int& exit_code);

}  // namespace oxbow::cli
