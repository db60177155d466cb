// SPDX-License-Identifier: Apache-2.0
#include "cli/child_program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/process.h"
#include "base/status_macros.h"

namespace oxbow::cli {

namespace {

namespace fs = std::filesystem;

// Python looks for modules in the working directory first, which may be a folder of other people's
// files. This takes it out of the way before anything is imported from there.
constexpr char kWithoutWorkingDirectory[] =
    "import sys; sys.path[:] = [p for p in sys.path if p]\n";

constexpr char kRunModule[] =
    "import runpy\n"
    "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)\n";

// Ends with 0 if the module and all packages are there. It imports none of them: torch alone takes
// two seconds.
constexpr char kAllThere[] =
    "import importlib.metadata, importlib.util\n"
    "for name in sys.argv[2:]: importlib.metadata.distribution(name)\n"
    "sys.exit(importlib.util.find_spec(sys.argv[1]) is None)\n";

std::string Script(const char* rest) { return absl::StrCat(kWithoutWorkingDirectory, rest); }

// The sources above this program, as in build/release/bin; empty: it was installed elsewhere.
fs::path SourcesOf(const fs::path& program) {
  const fs::path sources = program.parent_path().parent_path().parent_path().parent_path();
  std::error_code ignored;
  return fs::exists(sources / "python/oxbow/__init__.py", ignored) ? sources : fs::path();
}

// The folder that pip installs.
std::string PackageHere() {
  const auto program = ExecutablePath();
  const fs::path sources = program.ok() ? SourcesOf(*program) : fs::path();
  return sources.empty() ? "./python" : (sources / "python").string();
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

absl::StatusOr<PythonCall> FindPythonPart(const PythonPart& part,
                                          const std::vector<std::string>& arguments,
                                          std::vector<std::string> environment) {
  const std::string own = ValueIn(environment, "OXBOW_PYTHON");
  std::vector<fs::path> pythons;
  // Once: a shell takes the last of two, and Python the first.
  const auto set = [&](const std::string& name, const std::string& value) {
    std::erase_if(environment, [&](const auto& line) { return line.starts_with(name + "="); });
    environment.push_back(absl::StrCat(name, "=", value));
  };
  OXBOW_ASSIGN_OR_RETURN(const fs::path program, ExecutablePath());
  set("OXBOW_PROGRAM", program.string());
  if (const fs::path sources = SourcesOf(program); !sources.empty()) {
    const std::string former = ValueIn(environment, "PYTHONPATH");
    set("PYTHONPATH",
        absl::StrCat((sources / part.folder).string(), former.empty() ? "" : ":", former));
    pythons.push_back(sources / ".deps/venv/bin/python3");
    pythons.push_back(sources / ".deps/export/bin/python3");
  }
  if (fs::path python = ProgramOfPath("python3", environment); !python.empty()) {
    pythons.push_back(std::move(python));
  }
  if (!own.empty()) pythons = {own};
  std::vector<std::string> check = {"-c", Script(kAllThere),
                                    part.module.substr(0, part.module.rfind('.'))};
  check.insert(check.end(), part.needs.begin(), part.needs.end());
  for (fs::path& python : pythons) {
    const auto there = RunProgram(python, check, environment, /*quiet=*/true);
    if (!there.ok() || *there != 0) continue;
    std::vector<std::string> words = {"-c", Script(kRunModule), part.module};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return PythonCall{std::move(python), std::move(words), std::move(environment)};
  }
  return absl::UnavailableError(absl::StrCat(
      "this command is a part of the Python package, and ",
      own.empty() ? "no Python here has" : absl::StrCat("OXBOW_PYTHON=", own, " does not have"),
      " it with ", absl::StrJoin(part.needs, ", "), ": pip install '", PackageHere(), "[",
      part.extra, "]', or name a Python that has them: OXBOW_PYTHON=PATH"));
}

fs::path ProgramOfPath(const std::string& name, const std::vector<std::string>& environment) {
  for (const absl::string_view folder : absl::StrSplit(ValueIn(environment, "PATH"), ':')) {
    fs::path program = fs::path(std::string(folder)) / name;
    std::error_code ignored;
    if (!folder.empty() && fs::is_regular_file(program, ignored) &&
        access(program.c_str(), X_OK) == 0) {
      return program;
    }
  }
  return {};
}

absl::StatusOr<int> RunProgram(const fs::path& program, std::vector<std::string> arguments,
                               const std::vector<std::string>& environment, bool quiet, int printed,
                               const std::function<bool()>& killed) {
  SpawnOptions options{.binary = program, .argv = std::move(arguments), .environment = environment};
  options.argv.insert(options.argv.begin(), program.string());
  const int nowhere = quiet && printed < 0 ? open("/dev/null", O_WRONLY | O_CLOEXEC) : -1;
  const int out = std::max(printed, nowhere);
  if (out >= 0) options.output = {.out = out, .err = quiet ? out : STDERR_FILENO};
  const absl::StatusOr<pid_t> child = Spawn(options);
  if (nowhere >= 0) close(nowhere);
  if (!child.ok()) return child.status();
  int status = 0;
  while (true) {
    const pid_t ended = waitpid(*child, &status, killed ? WNOHANG : 0);
    if (ended > 0) break;
    if (ended < 0 && errno != EINTR) return absl::UnavailableError("its end cannot be waited for");
    if (ended == 0 && killed()) kill(*child, SIGKILL);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

absl::Status BecomePythonPart(const PythonPart& part, const std::vector<std::string>& arguments,
                              std::vector<std::string> environment) {
  OXBOW_ASSIGN_OR_RETURN(PythonCall found, FindPythonPart(part, arguments, std::move(environment)));
  found.words.insert(found.words.begin(), found.python.string());
  execve(found.python.c_str(), Pointers(found.words).data(), Pointers(found.environment).data());
  return absl::UnavailableError(
      absl::StrCat("cannot start: ", std::strerror(errno), ": ", found.python.string()));
}

}  // namespace oxbow::cli
