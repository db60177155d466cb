// `oxbow replay list|show|verify|export`: looks into a replay buffer and changes nothing.
#pragma once

namespace CLI {
class App;
}  // namespace CLI

namespace oxbow::cli {

// Adds the subcommand. When it was chosen, parsing sets `exit_code` (base/exit_code.h), which
// outlives `app`.
void AddReplay(CLI::App& app, int& exit_code);

}  // namespace oxbow::cli
