// `oxbow report RUN_DIR`: writes report.html anew from what the run has left so far.
#pragma once

namespace CLI {
class App;
}  // namespace CLI

namespace oxbow::cli {

// Adds the subcommand. When it was chosen, parsing sets `exit_code` (base/exit_code.h), which
// outlives `app`.
void AddReport(CLI::App& app, int& exit_code);

}  // namespace oxbow::cli
