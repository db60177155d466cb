#include "cli/validate.h"

#include <iostream>
#include <memory>

#include "absl/strings/str_format.h"
#include "base/exit_code.h"
#include "cli/check_files.h"
#include "config/run_config.h"

namespace oxbow::cli {
namespace {

// Independent of workers and ranks.
void PrintBatch(const v1::RunConfig& config) {
  const v1::BatchConfig& batch = config.batch();
  const uint64_t images = uint64_t{batch.groups()} * batch.group_size();
  const uint32_t replayed = config::ReplayedGroups(config);
  std::cout << absl::StrFormat("%-22s %d x %d = %d images\n", "a learner step", batch.groups(),
                               batch.group_size(), images)
            << absl::StrFormat("%-22s %d of %d groups\n", "with a replayed head", replayed,
                               batch.groups())
            << absl::StrFormat("%-22s %d of %d images\n", "an optimiser update",
                               images / batch.updates(), images)
            << absl::StrFormat("%-22s %d of %d sampling steps\n", "trained",
                               config.sampling().sde_count(), config.sampling().steps())
            << absl::StrFormat("%-22s %d steps, %d updates, %d images\n", "the run",
                               config.run().steps(), config.run().steps() * batch.updates(),
                               config.run().steps() * images);
}

int Run(const std::string& file, const std::vector<std::string>& set) {
  const auto resolved = config::LoadRunConfig(file, set, config::ProcessEnvironment());
  if (!resolved.ok()) {
    std::cerr << resolved.status().message() << "\n";
    return ExitCodeOf(resolved.status());
  }
  const std::vector<config::Problem> problems = CheckRun(resolved->config);
  for (const config::Problem& problem : problems) {
    std::cerr << config::ProblemLine(problem, resolved->provenance)
              << (problem.severity == config::Severity::kWarning ? " (warning)" : "") << "\n";
  }
  if (config::HasErrors(problems)) return kExitUsage;
  PrintBatch(resolved->config);
  return kExitOk;
}

}  // namespace

void AddValidate(CLI::App& app, int& exit_code) {
  struct Flags {
    std::string file;
    std::vector<std::string> set;
  };
  const auto flags = std::make_shared<Flags>();  // Lives as long as the callback below.
  CLI::App* command = app.add_subcommand("validate", "Check a run before it starts");
  command->footer(
      "Exit code 2 with FILE:LINE: key: reason.\nExample: oxbow validate configs/digits.yaml");
  command->add_option("file", flags->file, "run YAML")->required();
  command->add_option("--set", flags->set, "KEY=VALUE over everything else; may be repeated")
      ->allow_extra_args(false);
  command->callback([flags, &exit_code] { exit_code = Run(flags->file, flags->set); });
}

}  // namespace oxbow::cli
