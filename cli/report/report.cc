// SPDX-License-Identifier: Apache-2.0
#include "io/report/report.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "base/exit_code.h"
#include "cli/commands.h"
#include "cli/report/run_summary.h"
#include "cli/run_option.h"
#include "run/run_lock.h"
#include "services/learner/record/facts_of_run.h"

namespace oxbow::cli {

void AddReport(CLI::App& app, int& exit_code) {
  CLI::App* const command =
      app.add_subcommand("report", "Write report.html of a run, finished or in progress");
  command->footer("Example: oxbow report runs/digits");
  // Shared: the callback lives in the App and outlives this call.
  const auto run_dir = std::make_shared<std::string>();
  AddRunDirectory(*command, *run_dir, "directory of the run, with metrics.jsonl in it")->required();
  command->callback([run_dir, &exit_code] {
    absl::Status status = FindRun(*run_dir);
    if (status.ok()) {
      status = io::WriteReport(*run_dir, learner::FactsOfRun(*run_dir, run::IsLive(*run_dir)));
    }
    exit_code = ExitCodeOf(status);
    if (status.ok()) {
      std::cout << (std::filesystem::path(*run_dir) / "report.html").string() << "\n";
    } else {
      std::cerr << "oxbow report: " << status.message() << "\n";
    }
  });
}

}  // namespace oxbow::cli
