// SPDX-License-Identifier: Apache-2.0
// All of `oxbow` but its commands: a part of both programs (cli/commands.h).
#include <CLI/CLI.hpp>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/exit_code.h"
#include "base/help_page.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/oncall/health.h"
#include "cli/run/status.h"
#include "cli/usage_hint.h"
#include "cli/version.h"

namespace oxbow::cli {
namespace {

// In the order of the help page.
constexpr AddCommand* kCommands[] = {
    AddTrain,  AddResume,       AddValidate,  AddFetch,     AddStatus,         AddRuns,
    AddDoctor, AddReplay,       AddReport,    AddCompare,   AddWatch,          AddRollback,
    AddHealth, AddCertificates, AddConfig,    AddRecipes,   AddImportConfig,   AddEncode,
    AddSample, AddEval,         AddScore,     AddExport,    AddConvertWeights, AddSimulate,
    AddBench,  AddReproduce,    AddCompbench, AddCompletion};

std::vector<std::string> NamesOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) {
    if (!command->get_name().empty()) names.push_back(command->get_name());
  }
  return names;
}

// With those of its option groups, which have no name.
void AddOptions(const CLI::App& command, KnownWords& known) {
  for (const CLI::Option* option : command.get_options({})) {
    for (const std::string& name : option->get_lnames()) {
      known.options.push_back(name);
      // Elsewhere --set is a set of prompts, or a key of a reward.
      known.takes_settings |= name == "set" && option->get_description().starts_with("KEY=VALUE");
    }
  }
  for (const CLI::App* group : command.get_subcommands({})) {
    if (group->get_name().empty()) AddOptions(*group, known);
  }
}

KnownWords KnownTo(const CLI::App& app, const std::vector<std::string>& words) {
  KnownWords known;
  const CLI::App* command = &app;
  for (const std::string& word : words) {
    const auto named = [&](const CLI::App* one) { return one->get_name() == word; };
    const auto found = command->get_subcommands(named);
    if (found.empty()) break;
    command = found.front();
    ++known.depth;
  }
  known.commands = NamesOf(*command);
  AddOptions(*command, known);
  return known;
}

// CLI11 names words that it does not expect from the last to the first.
std::string FailureText(const CLI::App* app, const CLI::Error& error) {
  const std::string text = CLI::FailureMessage::simple(app, error);
  if (error.get_exit_code() != static_cast<int>(CLI::ExitCodes::ExtrasError)) return text;
  return absl::StrCat("not expected here: ", absl::StrJoin(app->remaining(true), " "),
                      text.substr(text.find('\n')));
}

}  // namespace

int RunCommand(int argc, char** argv) {
  ConfigureLog(LogLevel::kInfo, LogFormat::kText, "oxbow");
  CLI::App app("Post-trains flow-matching models with reinforcement learning.", "oxbow");
  UseHelpPage(app);
  app.failure_message(FailureText);
  int exit_code = kExitOk;
  bool version = false;
  bool json = false;
  app.add_flag("--version", version, "print the version (with --json: for programs)");
  app.add_flag("--json", json)->needs("--version");
  for (const auto add : kCommands) add(app, exit_code);
  // After the commands, which would inherit it.
  app.footer("Example: oxbow train configs/digits.yaml\nHelp on one command: oxbow COMMAND --help");
  const std::vector<std::string> words = AskedFor({argv + 1, argv + argc});
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));  // As CLI11 wants them.
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error) == 0 ? kExitOk : kExitUsage;
    if (code != kExitOk) std::cerr << UsageHint(words, KnownTo(app, words));
    return code;
  }
  if (version) {
    std::cout << VersionText(ThisBuild(), json) << "\n";
  } else if (app.get_subcommands().empty()) {
    std::cerr << app.help();
    return kExitUsage;
  }
  return exit_code;
}

}  // namespace oxbow::cli
