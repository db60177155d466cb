// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "base/exit_code.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "cli/commands.h"
#include "cli/report/comparison.h"
#include "cli/run_option.h"

namespace oxbow::cli {
namespace {

struct CompareFlags {
  std::vector<std::string> runs;
  std::string out = "comparison.html";
};

absl::Status Compare(const CompareFlags& flags) {
  const std::vector<std::filesystem::path> run_dirs(flags.runs.begin(), flags.runs.end());
  OXBOW_RETURN_IF_ERROR(CheckPlace(flags.out));
  OXBOW_ASSIGN_OR_RETURN(const std::string page, ComparisonPage(run_dirs, flags.out));
  OXBOW_RETURN_IF_ERROR(WriteFileAtomically(flags.out, page));
  std::cout << DifferencesText(run_dirs) << "\n";
  if (const std::string apart = RewardsApart(run_dirs); !apart.empty()) std::cout << apart << "\n";
  std::cout << flags.out << "\n";
  return absl::OkStatus();
}

}  // namespace

void AddCompare(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<CompareFlags>();  // Lives as long as the callback below.
  CLI::App* const command =
      app.add_subcommand("compare", "Write a page that shows runs side by side");
  command->footer("Prints the settings that differ. Example: oxbow compare runs/a runs/b");
  command->add_option("RUN_DIR", flags->runs, "directories of runs")
      ->transform(RunNamed)
      ->required()
      ->expected(2, 8);
  command->add_option("--out", flags->out, "the page")->capture_default_str();
  command->callback([flags, &exit_code] {
    const absl::Status status = Compare(*flags);
    exit_code = ExitCodeOf(status);
    if (!status.ok()) std::cerr << "oxbow compare: " << status.message() << "\n";
  });
}

}  // namespace oxbow::cli
