#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>

#include "base/exit_code.h"
#include "cli/commands.h"
#include "config/run_config.h"

namespace oxbow::cli {
namespace {

absl::Status Write(const config::ResolvedConfig& resolved, const std::filesystem::path& out) {
  std::error_code error;
  if (out.has_parent_path()) std::filesystem::create_directories(out.parent_path(), error);
  if (error) {
    return absl::UnavailableError("cannot make the directory: " + error.message() + ": " +
                                  out.parent_path().string());
  }
  return config::WriteResolved(resolved, out);
}

}  // namespace

void AddConfig(CLI::App& app, int& exit_code) {
  struct Flags {
    std::string file;
    std::vector<std::string> set;
    bool resolved = false;
    std::filesystem::path out;
  };
  const auto flags = std::make_shared<Flags>();  // Lives as long as the callback below.
  CLI::App* config = app.add_subcommand("config", "Look at run configurations");
  config->require_subcommand(1);
  CLI::App* show = config->add_subcommand("show", "Print a run's configuration with its sources");
  show->footer("Example: oxbow config show configs/digits.yaml --resolved --set batch.groups=16");
  show->add_option("file", flags->file, "run YAML; without it the defaults alone");
  show->add_option("--set", flags->set, "KEY=VALUE over everything else; may be repeated")
      ->allow_extra_args(false);
  show->add_flag("--resolved", flags->resolved,
                 "every value, not only those that differ from the defaults");
  show->add_option("--out", flags->out,
                   "write every value to this file instead, as the services read it; its directory "
                   "is made if it is not there");
  show->callback([flags, &exit_code] {
    const auto resolved =
        config::LoadRunConfig(flags->file, flags->set, config::ProcessEnvironment());
    if (!resolved.ok()) {
      std::cerr << "oxbow config: " << resolved.status().message() << "\n";
      exit_code = ExitCodeOf(resolved.status());
      return;
    }
    if (!flags->out.empty()) {
      const absl::Status written = Write(*resolved, flags->out);
      if (!written.ok()) std::cerr << "oxbow config: " << written.message() << "\n";
      exit_code = ExitCodeOf(written);
      return;
    }
    if (flags->resolved) {
      std::cout << config::ResolvedYaml(*resolved);
      return;
    }
    for (const auto& [key, source] : resolved->provenance) {
      if (source != "default") std::cout << key << "  # " << source << "\n";
    }
  });
}

}  // namespace oxbow::cli
