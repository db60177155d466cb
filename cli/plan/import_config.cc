// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "cli/commands.h"
#include "config/import/flow_factory.h"

namespace oxbow::cli {
namespace {

constexpr uint64_t kFileBytesMax = 1 << 20;

struct ImportFlags {
  std::string file;
  std::string out;
  bool allow_unknown = false;
};

void Say(const std::vector<std::string>& lines, const char* suffix) {
  for (const std::string& line : lines) std::cerr << line << suffix << "\n";
}

absl::Status Refusal(const config::ImportedRun& run, const ImportFlags& flags) {
  if (!run.problems.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(run.problems.size(), " settings have no counterpart; nothing is written"));
  }
  if (!run.unknown.empty() && !flags.allow_unknown) {
    return absl::InvalidArgumentError(
        absl::StrCat(run.unknown.size(),
                     " keys are not known, so the run might be another one; nothing is written "
                     "(--allow-unknown leaves them out)"));
  }
  return absl::OkStatus();
}

absl::Status Import(const ImportFlags& flags) {
  if (!flags.out.empty() && std::filesystem::exists(flags.out)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--out is there already; choose another name: ", flags.out));
  }
  OXBOW_ASSIGN_OR_RETURN(const std::string text, ReadFile(flags.file, kFileBytesMax));
  OXBOW_ASSIGN_OR_RETURN(const config::ImportedRun run,
                         config::ImportFlowFactory(text, flags.file));
  Say(run.problems, "");
  Say(run.unknown, flags.allow_unknown ? " (left out)" : "");
  OXBOW_RETURN_IF_ERROR(Refusal(run, flags));
  Say(run.differences, " (differs)");
  const std::string name = std::filesystem::path(flags.file).filename().string();
  const std::string yaml = config::ImportedYaml(run, name);
  if (!flags.out.empty()) return WriteFileAtomically(flags.out, yaml);
  std::cout << yaml;
  return absl::OkStatus();
}

}  // namespace

void AddImportConfig(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<ImportFlags>();  // Lives as long as the callback below.
  CLI::App* const command =
      app.add_subcommand("import-config", "Turn another project's run file into one of ours");
  command->require_subcommand(1);
  command->footer("Example: oxbow import-config flow-factory sd3_5.yaml --out sd35.yaml");
  CLI::App* const flow_factory =
      command->add_subcommand("flow-factory", "A YAML file of Flow-Factory's");
  flow_factory->footer(
      "Names on stderr what differs here; what is not needed here is a comment in the file.\n"
      "Exit code 2, and nothing is written: a setting without a counterpart, a value of the wrong\n"
      "type or an unknown key, each as FILE:LINE: key: reason. 4: the file is not there.\n"
      "Example: oxbow import-config flow-factory sd3_5.yaml --out sd35.yaml");
  flow_factory->add_option("FILE", flags->file, "their YAML")->required();
  flow_factory->add_option("--out", flags->out, "ours (default: stdout)");
  flow_factory->add_flag("--allow-unknown", flags->allow_unknown, "leave unknown keys out");
  flow_factory->callback([flags, &exit_code] {
    const absl::Status status = Import(*flags);
    if (!status.ok()) std::cerr << "oxbow import-config: " << status.message() << "\n";
    exit_code = ExitCodeOf(status);
  });
}

}  // namespace oxbow::cli
