// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/exit_code.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "cli/commands.h"
#include "cli/run_option.h"
#include "cli/terminal.h"
#include "config/key_names.h"
#include "config/run_config.h"

namespace oxbow::cli {
namespace {

absl::Status Write(const config::ResolvedConfig& resolved, const std::filesystem::path& out) {
  if (out.has_parent_path()) OXBOW_RETURN_IF_ERROR(MakeDirectories(out.parent_path()));
  return config::WriteResolved(resolved, out);
}

void AddShow(CLI::App& config, int& exit_code) {
  struct Flags {
    std::string file;
    std::vector<std::string> set;
    bool resolved = false;
    std::filesystem::path out;
  };
  const auto flags = std::make_shared<Flags>();  // Lives as long as the callback below.
  CLI::App* show = config.add_subcommand("show", "Print a run's configuration with its sources");
  show->footer("Example: oxbow config show configs/digits.yaml --resolved --set batch.groups=16");
  show->add_option("file", flags->file, "run YAML; without it the defaults alone");
  AddSettings(*show, flags->set);
  show->add_flag("--resolved", flags->resolved, "every value, not only those that were chosen");
  show->add_option("--out", flags->out,
                   "write every value to this file instead, as the services read it; its directory "
                   "is made if it is not there");
  show->callback([flags, &exit_code] {
    const bool whole = flags->resolved || !flags->out.empty();  // As the services read it.
    const auto resolved = config::LoadRunConfig(
        flags->file, flags->set, config::ProcessEnvironment(), whole ? 0 : config::kLeaveAuto);
    absl::Status status = resolved.status();
    if (status.ok() && !flags->out.empty()) {
      status = Write(*resolved, flags->out);
    } else if (status.ok()) {
      std::cout << (flags->resolved ? config::ResolvedYaml : config::ChosenYaml)(*resolved);
    }
    exit_code = Ended("config", status);
  });
}

void AddExplain(CLI::App& config, int& exit_code) {
  CLI::App* const explain = config.add_subcommand(
      "explain",
      "Say what a key of a run's configuration is for, which values it takes and "
      "when to change it");
  explain->footer(
      "A name without its section will do where there is only one.\n"
      "Example: oxbow config explain batch.group_size");
  const auto key = std::make_shared<std::string>();
  explain->add_option("KEY", *key, "a key such as batch.group_size, or a section")->required();
  explain->callback([key, &exit_code] {
    const auto explained = config::ExplainKey(*key);
    exit_code = explained.ok() ? kExitOk : kExitUsage;
    if (!explained.ok()) {
      std::cerr << "oxbow config: " << explained.status().message() << "\n";
      return;
    }
    std::cout << explained->key << "\n";
    const auto row = [](const char* label, const std::string& text) {
      if (!text.empty()) std::cout << absl::StrFormat("  %-8s %s\n", label, text);
    };
    if (!explained->meaning.empty()) std::cout << "  " << explained->meaning << "\n";
    row("takes", explained->takes);
    row("default", explained->value);
    row("recipes", explained->recipes);
    row("change", explained->change);
    row("resume", explained->may_change_on_resume ? "may change" : "must stay as it is");
  });
}

// The first sentence of a recipe's first comment.
std::string FirstSentence(const std::string& text) {
  std::string comment;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::StartsWith(line, "# ")) break;
    absl::StrAppend(&comment, comment.empty() ? "" : " ", line.substr(2));
  }
  return comment.substr(0, std::min(comment.find(". "), comment.size() - 1) + 1);
}

}  // namespace

void AddConfig(CLI::App& app, int& exit_code) {
  CLI::App* config = app.add_subcommand("config", "Look at run configurations");
  config->footer("Example: oxbow config show configs/digits.yaml");
  config->require_subcommand(1);
  AddShow(*config, exit_code);
  AddExplain(*config, exit_code);
}

void AddRecipes(CLI::App& app, int& exit_code) {
  CLI::App* const recipes =
      app.add_subcommand("recipes", "List the built-in recipes, or print one");
  recipes->footer(
      "A run file names one: `recipe: digits-op-grpo`; the path of a .yaml file does as well.\n"
      "Example: oxbow recipes digits-op-grpo");
  const auto name = std::make_shared<std::string>();
  recipes->add_option("NAME", *name, "prints this one");
  recipes->callback([name, &exit_code] {
    exit_code = kExitOk;
    for (const auto& [known, text] : config::Recipes()) {
      if (*name == known) std::cout << text;
      if (name->empty()) std::cout << absl::StrFormat("%-28s %s\n", known, FirstSentence(text));
      if (*name == known) return;
    }
    if (name->empty()) return;
    std::cerr << "oxbow recipes: no recipe of that name: " << *name << "\n";
    exit_code = kExitUsage;
  });
}

}  // namespace oxbow::cli
