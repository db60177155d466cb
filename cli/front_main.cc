// SPDX-License-Identifier: Apache-2.0
// oxbow: the commands that need no LibTorch. For the others it becomes oxbow_models, which gets the
// same words, environment and terminal (cli/commands.h).
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "cli/commands.h"
#include "cli/replay/replay_entry.h"
#include "cli/run/child_process.h"

namespace oxbow::cli {
namespace {

char** own_words = nullptr;  // As main got them, for exec.

// Returns if it fails.
absl::Status BecomeModels() {
  const std::filesystem::path program = BinaryDirectory() / "oxbow_models";
  execv(program.c_str(), own_words);
  return absl::UnavailableError(
      absl::StrCat("cannot start the program of the commands with models, which belongs beside "
                   "oxbow: ",
                   std::strerror(errno), ": ", program.string()));
}

// Adds it for the help page. All words behind it, --help too, are for oxbow_models.
void List(CLI::App& app, const ModelCommand& command, int& exit_code) {
  CLI::App* const listed = app.add_subcommand(command.name, command.says);
  listed->prefix_command()->set_help_flag();
  listed->callback([&exit_code] {
    const absl::Status failed = BecomeModels();
    std::cerr << "oxbow: " << failed.message() << "\n";
    exit_code = ExitCodeOf(failed);
  });
}

}  // namespace

void AddTrain(CLI::App& app, int& exit_code) { List(app, kTrain, exit_code); }
void AddResume(CLI::App& app, int& exit_code) { List(app, kResume, exit_code); }
void AddValidate(CLI::App& app, int& exit_code) { List(app, kValidate, exit_code); }
void AddFetch(CLI::App& app, int& exit_code) { List(app, kFetch, exit_code); }
void AddDoctor(CLI::App& app, int& exit_code) { List(app, kDoctor, exit_code); }
void AddEncode(CLI::App& app, int& exit_code) { List(app, kEncode, exit_code); }
void AddSample(CLI::App& app, int& exit_code) { List(app, kSample, exit_code); }
void AddEval(CLI::App& app, int& exit_code) { List(app, kEval, exit_code); }
void AddScore(CLI::App& app, int& exit_code) { List(app, kScore, exit_code); }
void AddExport(CLI::App& app, int& exit_code) { List(app, kExport, exit_code); }
void AddCompletion(CLI::App& app, int& exit_code) { List(app, kCompletion, exit_code); }

absl::Status ShowEntry(const ReplayFlags& /*flags*/) { return BecomeModels(); }
absl::Status ExportEntry(const ReplayFlags& /*flags*/) { return BecomeModels(); }

}  // namespace oxbow::cli

int main(int argc, char** argv) {
  oxbow::cli::own_words = argv;
  return oxbow::cli::RunCommand(argc, argv);
}
