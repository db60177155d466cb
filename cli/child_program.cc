// SPDX-License-Identifier: Apache-2.0
#include "cli/child_program.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_split.h"
#include "base/process.h"

namespace oxbow::cli {

namespace fs = std::filesystem;

fs::path ProgramOfPath(const std::string& name, const std::vector<std::string>& environment) {
  for (const std::string& line : environment) {
    if (!line.starts_with("PATH=")) continue;
    for (const absl::string_view folder : absl::StrSplit(line.substr(5), ':')) {
      fs::path program = fs::path(std::string(folder)) / name;
      std::error_code ignored;
      if (!folder.empty() && fs::is_regular_file(program, ignored) &&
          access(program.c_str(), X_OK) == 0) {
        return program;
      }
    }
    break;
  }
  return {};
}

absl::StatusOr<int> RunProgram(const fs::path& program, std::vector<std::string> arguments,
                               const std::vector<std::string>& environment, bool quiet,
                               int printed) {
  SpawnOptions options{.binary = program, .argv = std::move(arguments), .environment = environment};
  options.argv.insert(options.argv.begin(), program.string());
  const int nowhere = quiet ? open("/dev/null", O_WRONLY | O_CLOEXEC) : -1;
  if (nowhere >= 0) options.output = {.out = nowhere, .err = nowhere};
  if (printed >= 0) options.output = {.out = printed, .err = STDERR_FILENO};
  const absl::StatusOr<pid_t> child = Spawn(options);
  if (nowhere >= 0) close(nowhere);
  if (!child.ok()) return child.status();
  int status = 0;
  while (waitpid(*child, &status, 0) < 0) {
    if (errno != EINTR) return absl::UnavailableError("its end cannot be waited for");
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace oxbow::cli
