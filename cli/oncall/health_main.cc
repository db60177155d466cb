// SPDX-License-Identifier: Apache-2.0
// oxbow_health: only `oxbow health`, a small program for probes and the image of the replay buffer.
#include <CLI/CLI.hpp>

#include "base/exit_code.h"
#include "base/help_page.h"
#include "cli/oncall/health.h"

int main(int argc, char** argv) {
  CLI::App app("Asks a service whether it serves.", "oxbow_health");
  oxbow::UseHelpPage(app);
  int exit_code = oxbow::kExitOk;
  oxbow::cli::AskHealth(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? oxbow::kExitOk : oxbow::kExitUsage;
  }
  return exit_code;
}
