// oxbow_health: `oxbow health` without the rest of `oxbow`, whose LibTorch a probe that runs every
// few seconds would load in vain, and an image of the replay buffer does not have.
#include <CLI/CLI.hpp>

#include "base/exit_code.h"
#include "cli/oncall/health.h"

int main(int argc, char** argv) {
  CLI::App app("Asks a service whether it serves.", "oxbow_health");
  int exit_code = oxbow::kExitOk;
  oxbow::cli::AskHealth(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? oxbow::kExitOk : oxbow::kExitUsage;
  }
  return exit_code;
}
