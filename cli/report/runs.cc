// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "absl/time/clock.h"
#include "base/exit_code.h"
#include "cli/commands.h"
#include "cli/report/run_summary.h"

namespace oxbow::cli {

void AddRuns(CLI::App& app, int& exit_code) {
  CLI::App* const command =
      app.add_subcommand("runs", "List runs: state, held-out reward, age, verdict");
  command->footer("Example: oxbow runs\nThe run that logged a step last comes first.");
  const auto directory = std::make_shared<std::string>("runs");
  command->add_option("DIR", *directory, "directory of runs")->capture_default_str();
  command->callback([directory, &exit_code] {
    if (!std::filesystem::is_directory(*directory)) {
      std::cerr << "oxbow runs: no such directory: " << *directory << "\n";
      exit_code = kExitUsage;
      return;
    }
    const std::vector<RunSummary> runs = RunsIn(*directory);
    if (runs.empty()) std::cerr << "oxbow runs: no run in " << *directory << "\n";
    if (!runs.empty()) std::cout << RunsText(runs, absl::Now());
    exit_code = kExitOk;
  });
}

}  // namespace oxbow::cli
