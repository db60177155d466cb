// `oxbow doctor`: finds what is wrong with this machine, a run's config, or a running fleet.
#pragma once

namespace CLI {
class App;
}  // namespace CLI

namespace oxbow::cli {

// Adds the subcommand. If it is chosen, parsing sets `exit_code` (base/exit_code.h), which must
// outlive `app`.
void AddDoctor(CLI::App& app, int& exit_code);

}  // namespace oxbow::cli
