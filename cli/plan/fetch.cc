// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/fetch.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/exit_code.h"
#include "base/status_macros.h"
#include "cli/child_program.h"
#include "cli/commands.h"
#include "cli/plan/hub_files.h"
#include "config/file_paths.h"
#include "config/run_config.h"

namespace oxbow::cli {
namespace {

namespace fs = std::filesystem;

// The command that `hf download` stands for, in a Python that has the package without the program.
constexpr char kPython[] =
    "import sys\n"
    "from huggingface_hub import snapshot_download\n"
    "print(snapshot_download(sys.argv[1], repo_type=sys.argv[2], revision=sys.argv[3], "
    "allow_patterns=sys.argv[4:]))\n";

struct Client {
  fs::path program;
  bool python = false;  // The module of a Python.
};

std::optional<Client> FindClient(const std::vector<std::string>& environment) {
  if (fs::path hf = ProgramOfPath("hf", environment); !hf.empty()) return Client{std::move(hf)};
  fs::path python = ProgramOfPath("python3", environment);
  if (python.empty()) return std::nullopt;
  const auto exit =
      RunProgram(python, {"-c", "import huggingface_hub"}, environment, /*quiet=*/true);
  if (!exit.ok() || *exit != 0) return std::nullopt;
  return Client{std::move(python), /*python=*/true};
}

std::vector<std::string> ArgumentsOf(const Client& client, const HubFiles& files) {
  const std::vector<std::string> patterns = files.patterns();
  if (!client.python) return io::DownloadArguments(files.id(), patterns);
  const io::HubId id = files.id();
  std::vector<std::string> words = {"-c", kPython, id.repository(),
                                    id.dataset ? "dataset" : "model", id.revision};
  words.insert(words.end(), patterns.begin(), patterns.end());
  return words;
}

absl::Status FetchOne(const Client& client, const HubFiles& files,
                      const std::vector<std::string>& environment) {
  const auto exit = RunProgram(client.program, ArgumentsOf(client, files), environment, false);
  if (!exit.ok()) return Annotate(exit.status(), client.program.string());
  if (*exit != 0) {
    return absl::UnavailableError(absl::StrCat(
        files.path, " was not fetched: ", client.program.string(), " ended with exit code ", *exit,
        "; its reason is above. A gated repository wants its licence accepted on the Hub, and "
        "`hf auth login`"));
  }
  if (!WholeIn(files, environment).empty()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(files.path,
                   ": the client ended without an error, and the Hub's cache does not "
                   "have all that a run reads of it (HF_HUB_CACHE, HF_HOME)"));
}

// Ids stay ids where the cache has nothing.
std::vector<std::string> WithoutCache(std::vector<std::string> environment) {
  environment.insert(environment.begin(), "HF_HUB_CACHE=/dev/null");
  return environment;
}

// Returns how many are missing.
size_t SayLocalFiles(const v1::RunConfig& config, std::ostream& out) {
  const std::vector<LocalFile> missing = LocalFilesMissing(config);
  for (const LocalFile& file : missing) {
    out << file.key << ": there is nothing at " << file.path << config::WhereLookedFor(file.path)
        << "; no id names it, so put it there or set " << file.key
        << (file.source.empty() ? "" : ": " + file.source) << "\n";
  }
  return missing.size();
}

absl::Status FetchIds(const FetchOptions& options, const v1::RunConfig& config,
                      const std::vector<std::string>& environment, std::ostream& out) {
  std::vector<HubFiles> missing;
  const std::vector<HubFiles> all = HubFilesOf(config, environment);
  if (all.empty()) out << "the run names nothing by an id of the Hugging Face Hub\n";
  for (const HubFiles& files : all) {
    const std::string directory = WholeIn(files, environment);
    if (directory.empty()) missing.push_back(files);
    out << absl::StrJoin(files.keys, ", ") << ": " << files.path
        << (directory.empty() ? " is to be fetched" : " is in the cache: " + directory) << "\n";
  }
  out << std::flush;
  if (missing.empty()) return absl::OkStatus();
  const std::optional<Client> client = options.print ? std::nullopt : FindClient(environment);
  if (!client.has_value()) {
    for (const HubFiles& files : missing) {
      out << io::DownloadCommand(files.id(), files.patterns()) << "\n";
    }
    out << std::flush;
    if (options.print) return absl::OkStatus();
    return absl::UnavailableError(
        "no client of the Hub is here (the program hf, or a python3 with huggingface_hub): `pip "
        "install huggingface_hub`, then run the commands above, also on another machine with this "
        "cache");
  }
  for (const HubFiles& files : missing) {
    OXBOW_RETURN_IF_ERROR(FetchOne(*client, files, environment));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Fetch(const FetchOptions& options, const std::vector<std::string>& environment,
                   std::ostream& out) {
  OXBOW_ASSIGN_OR_RETURN(
      const config::ResolvedConfig resolved,
      config::LoadRunConfig(options.file, options.set, WithoutCache(environment)));
  const absl::Status fetched = FetchIds(options, resolved.config, environment, out);
  const size_t missing = SayLocalFiles(resolved.config, out);
  OXBOW_RETURN_IF_ERROR(fetched);
  if (options.print) return absl::OkStatus();
  if (missing > 0) {
    return absl::NotFoundError(absl::StrCat(missing,
                                            missing == 1
                                                ? " file or directory that no id names is"
                                                : " files or directories that no id names are",
                                            " missing: see above"));
  }
  out << "all is there: oxbow validate " << options.file << "\n";
  return absl::OkStatus();
}

void AddFetch(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<FetchOptions>();  // Lives as long as the callback below.
  CLI::App* command = app.add_subcommand(kFetch.name, kFetch.says);
  command->footer(
      "Example: oxbow fetch configs/recipes/sd35m-pickscore.yaml\n"
      "Model, rewards, tokenizers and prompts; of each repository the part that is read. Then says "
      "which\nfiles that no id names are missing. Exit code 3: there is no client (then the "
      "commands are printed),\nor it failed; 4: such a file is missing.");
  command->add_option("file", options->file, "run YAML")->required();
  command->add_option("--set", options->set, "KEY=VALUE over everything else; may be repeated")
      ->allow_extra_args(false);
  command->add_flag("--print", options->print, "print the commands, and run none");
  command->callback([options, &exit_code] {
    const absl::Status status = Fetch(*options, config::ProcessEnvironment(), std::cout);
    if (!status.ok()) std::cerr << "oxbow fetch: " << status.message() << "\n";
    exit_code = ExitCodeOf(status);
  });
}

}  // namespace oxbow::cli
