// `oxbow doctor`: what is wrong with this machine, a run's configuration, or a running fleet.
#pragma once

namespace CLI {
class App;
}  // namespace CLI

namespace oxbow::cli {

// Adds the subcommand. When it was chosen, parsing sets `exit_code` (base/exit_code.h), which
// outlives `app`.
void AddDoctor(CLI::App& app, int& exit_code);

}  // namespace oxbow::cli
