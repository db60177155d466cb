// `oxbow sample`: draws images of a model or a finished run onto a PNG sheet.
#pragma once

namespace CLI {
class App;
}  // namespace CLI

namespace oxbow::cli {

// Adds the subcommand. When it was chosen, parsing sets `exit_code` (base/exit_code.h), which
// outlives `app`.
void AddSample(CLI::App& app, int& exit_code);

}  // namespace oxbow::cli
