// SPDX-License-Identifier: Apache-2.0
// Run files of other tools. Python knows their formats (python/oxbow/importers) and makes a draft:
// keys of ours with their values, and lines for the user. Here the keys are set in the schema, and
// the rules applied to them.
#include <sys/mman.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/exit_code.h"
#include "base/file.h"
#include "base/json.h"
#include "base/status_macros.h"
#include "cli/child_program.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "config/run_config.h"
#include "config/validate.h"

namespace oxbow::cli {
namespace {

using Lines = std::vector<std::string>;

constexpr int kLastOwnCode = 5;  // Above it Python has said nothing: it was killed.

struct ImportFlags {
  std::string tool;
  std::string file;
  std::string out;
  unsigned gpus = 0;
  bool allow_unknown = false;
};

// A file of another tool as Python reads it.
struct Draft {
  struct Key {
    std::string ours, text, origin, named;
  };
  std::string title, recipe;
  std::vector<Key> keys;
  Lines problems, unknown, different, needless;
};

absl::StatusOr<Draft> DraftOf(const std::string& text) {
  const nlohmann::json root = ParseJson(text);
  try {
    Draft draft{.title = root.at("title").get<std::string>(),
                .recipe = root.at("recipe").get<std::string>(),
                .keys = {},
                .problems = root.at("problems").get<Lines>(),
                .unknown = root.at("unknown").get<Lines>(),
                .different = root.at("different").get<Lines>(),
                .needless = root.at("needless").get<Lines>()};
    for (const auto& [ours, text_of, origin, named] :
         root.at("keys").get<std::vector<std::array<std::string, 4>>>()) {
      draft.keys.push_back({ours, text_of, origin, named});
    }
    return draft;
  } catch (const nlohmann::json::exception& error) {
    return absl::InternalError(absl::StrCat("Python wrote no draft: ", error.what()));
  }
}

// The draft, or the exit code of a Python part that has said itself why there is none.
absl::StatusOr<Draft> DraftFromPython(const ImportFlags& flags) {
  const int printed = memfd_create("draft", MFD_CLOEXEC);
  if (printed < 0) return absl::UnavailableError("no memory for the draft");
  const std::string path = absl::StrCat("/proc/self/fd/", printed);
  Lines arguments = {"--", flags.tool, flags.file};
  if (flags.gpus > 0) arguments.insert(arguments.begin(), absl::StrCat("--gpus=", flags.gpus));
  const auto call = FindPythonPart(
      {.module = "oxbow.importers.command", .needs = {"PyYAML"}, .extra = "importers"}, arguments,
      config::ProcessEnvironment());
  const auto ended =
      call.ok() ? RunProgram(call->python, call->words, call->environment, /*quiet=*/false, printed)
                : call.status();
  const auto text = ReadFile(path);
  close(printed);
  OXBOW_RETURN_IF_ERROR(ended.status());
  if (*ended > kLastOwnCode) {
    return absl::InternalError(
        absl::StrCat("Python ended with code ", *ended, " while it read ", flags.file));
  }
  if (*ended != kExitOk) return ErrorOf(*ended, "");
  OXBOW_RETURN_IF_ERROR(text.status());
  return DraftOf(*text);
}

// Sets the draft's keys and applies the rules. Their words join the draft's lines, with the
// place in the other tool's file.
absl::StatusOr<config::ResolvedConfig> Resolved(Draft& draft) {
  std::vector<std::string> recipe;
  if (!draft.recipe.empty()) recipe.push_back(absl::StrCat("recipe=", draft.recipe));
  OXBOW_ASSIGN_OR_RETURN(config::ResolvedConfig run, config::LoadRunConfig({}, recipe, {}));
  for (auto& [key, source] : run.provenance) source = config::kDefaultSource;
  std::map<std::string, std::string> names;
  for (const Draft::Key& key : draft.keys) {
    const absl::Status set =
        config::SetByText(key.ours, key.text, {.name = key.origin}, &run.config, &run.provenance);
    if (!set.ok()) draft.problems.push_back(absl::StrCat(key.named, ": ", set.message()));
    names[key.ours] = key.named;
  }
  if (!draft.problems.empty()) return run;
  for (const config::Problem& problem : config::Validate(run.config)) {
    const auto name = names.find(problem.key);
    (problem.severity == config::Severity::kError ? draft.problems : draft.different)
        .push_back(absl::StrCat(name == names.end() ? draft.title : name->second, ": becomes ",
                                problem.key, ": ", problem.message));
  }
  return run;
}

void Say(const Lines& lines, const char* suffix) {
  for (const std::string& line : lines) std::cerr << line << suffix << "\n";
}

absl::Status Refusal(const Draft& draft, const ImportFlags& flags) {
  if (!draft.problems.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(draft.problems.size(), " settings have no counterpart; nothing is written"));
  }
  if (!draft.unknown.empty() && !flags.allow_unknown) {
    return absl::InvalidArgumentError(
        absl::StrCat(draft.unknown.size(),
                     " keys are not known, so the run might be another one; nothing is written "
                     "(--allow-unknown leaves them out)"));
  }
  return absl::OkStatus();
}

void AppendComments(const std::string& title, const Lines& lines, std::string* out) {
  if (lines.empty()) return;
  absl::StrAppend(out, "\n# ", title, "\n");
  for (const std::string& line : lines) {
    absl::StrAppend(out, "#   ", absl::StrReplaceAll(line, {{"\n", " "}, {"\r", " "}}), "\n");
  }
}

// The values, each with its origin, and the rest as comments.
std::string YamlOf(const Draft& draft, const config::ResolvedConfig& run, const std::string& tool) {
  std::string out =
      absl::StrCat("# From ", draft.title, " by `oxbow import-config ", tool, "`.\n",
                   "# A comment after a value says which of its keys it comes from.\n");
  if (!draft.recipe.empty()) absl::StrAppend(&out, "recipe: ", draft.recipe, "\n");
  absl::StrAppend(&out, config::ChosenYaml(run));
  AppendComments("Different here:", draft.different, &out);
  AppendComments("Not needed here:", draft.needless, &out);
  AppendComments("Unknown, and left out:", draft.unknown, &out);
  return out;
}

absl::Status Import(const ImportFlags& flags) {
  if (!flags.out.empty() && std::filesystem::exists(flags.out)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--out is there already; choose another name: ", flags.out));
  }
  OXBOW_ASSIGN_OR_RETURN(Draft draft, DraftFromPython(flags));
  OXBOW_ASSIGN_OR_RETURN(const config::ResolvedConfig run, Resolved(draft));
  Say(draft.problems, "");
  Say(draft.unknown, flags.allow_unknown ? " (left out)" : "");
  OXBOW_RETURN_IF_ERROR(Refusal(draft, flags));
  Say(draft.different, " (differs)");
  const std::string yaml = YamlOf(draft, run, flags.tool);
  if (!flags.out.empty()) return WriteFileAtomically(flags.out, yaml);
  std::cout << yaml;
  return absl::OkStatus();
}

}  // namespace

void AddImportConfig(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<ImportFlags>();  // Lives as long as the callbacks below.
  CLI::App* const command =
      app.add_subcommand("import-config", "Turn another project's run file into one of ours");
  command->require_subcommand(1);
  command->footer("Example: oxbow import-config flow-factory sd3_5.yaml --out sd35.yaml");
  struct Tool {
    const char *name, *what, *file, *example;
    bool counts_processes;
  };
  for (const Tool& tool :
       {Tool{"flow-factory", "A YAML file of Flow-Factory's", "their YAML", "sd3_5.yaml", false},
        Tool{"flow-grpo", "A function of flow_grpo's config/grpo.py", "FILE.py:FUNCTION",
             "config/grpo.py:pickscore_sd3", true},
        Tool{"dance-grpo", "A script of DanceGRPO or MixGRPO that starts a training",
             "their shell script", "scripts/finetune/finetune_flux_grpo.sh", true}}) {
    CLI::App* const one = command->add_subcommand(tool.name, tool.what);
    one->footer(absl::StrCat(
        "Names on stderr what differs here; what is not needed here is a comment in the file.\n"
        "Nothing of the file is run. It works in Python, with PyYAML; `make build` has it.\n"
        "Exit code 2, and nothing is written: a setting without a counterpart, a value of the "
        "wrong\n"
        "type or an unknown key, each as FILE:LINE: key: reason. 4: the file is not there.\n"
        "Example: oxbow import-config ",
        tool.name, " ", tool.example, " --out run.yaml"));
    one->add_option("FILE", flags->file, tool.file)->required();
    one->add_option("--out", flags->out, "ours (default: stdout)");
    one->add_flag("--allow-unknown", flags->allow_unknown, "leave unknown keys out");
    if (tool.counts_processes) {
      one->add_option("--gpus", flags->gpus, "processes of the run, where the file does not say it")
          ->check(CLI::Range(1u, 4096u));
    }
    one->callback([flags, &exit_code, name = std::string(tool.name)] {
      flags->tool = name;
      exit_code = Ended("import-config", Import(*flags));
    });
  }
}

}  // namespace oxbow::cli
