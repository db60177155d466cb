// `oxbow eval`: measures a model or a finished run on prompts of the task `digits`.
#pragma once

namespace CLI {
class App;
}  // namespace CLI

namespace oxbow::cli {

// Adds the subcommand. When it was chosen, parsing sets `exit_code` (base/exit_code.h), which
// outlives `app`.
void AddEval(CLI::App& app, int& exit_code);

}  // namespace oxbow::cli
