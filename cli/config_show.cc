#include "cli/config_show.h"

#include <iostream>
#include <memory>

#include "base/exit_code.h"
#include "config/run_config.h"

namespace oxbow::cli {

void AddConfig(CLI::App& app, int& exit_code) {
  struct Flags {
    std::string file;
    std::vector<std::string> set;
    bool resolved = false;
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
  show->callback([flags, &exit_code] {
    const auto resolved =
        config::LoadRunConfig(flags->file, flags->set, config::ProcessEnvironment());
    if (!resolved.ok()) {
      std::cerr << "oxbow config: " << resolved.status().message() << "\n";
      exit_code = ExitCodeOf(resolved.status());
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
