// SPDX-License-Identifier: Apache-2.0
#include "cli/python_part.h"

#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/process.h"
#include "cli/child_program.h"

namespace oxbow::cli {
namespace {

namespace fs = std::filesystem;

// Ends with 0 if the module and all packages are there. It imports none of them: torch alone takes
// two seconds.
constexpr char kAllThere[] =
    "import importlib.metadata, importlib.util, sys\n"
    "for name in sys.argv[2:]: importlib.metadata.distribution(name)\n"
    "sys.exit(importlib.util.find_spec(sys.argv[1]) is None)\n";

std::string ValueOf(const std::string& name, const std::vector<std::string>& environment) {
  for (const std::string& line : environment) {
    if (absl::StartsWith(line, name + "=")) return line.substr(name.size() + 1);
  }
  return "";
}

// The sources above this program, as in build/release/bin; empty: it was installed elsewhere.
fs::path Sources() {
  const auto program = ExecutablePath();
  if (!program.ok()) return {};
  const fs::path sources = program->parent_path().parent_path().parent_path().parent_path();
  std::error_code ignored;
  return fs::exists(sources / "python/oxbow/__init__.py", ignored) ? sources : fs::path();
}

}  // namespace

absl::StatusOr<int> RunPythonPart(const PythonPart& part, const std::vector<std::string>& arguments,
                                  std::vector<std::string> environment) {
  const std::string own = ValueOf("OXBOW_PYTHON", environment);
  std::vector<fs::path> pythons;
  if (const fs::path sources = Sources(); !sources.empty()) {
    const std::string former = ValueOf("PYTHONPATH", environment);
    // Once: a shell takes the last of two, and Python the first.
    std::erase_if(environment, [](const auto& line) { return line.starts_with("PYTHONPATH="); });
    environment.push_back(absl::StrCat("PYTHONPATH=", (sources / "python").string(),
                                       former.empty() ? "" : ":", former));
    pythons.push_back(sources / ".deps/venv/bin/python3");
  }
  if (fs::path python = ProgramOfPath("python3", environment); !python.empty()) {
    pythons.push_back(std::move(python));
  }
  if (!own.empty()) pythons = {own};
  std::vector<std::string> check = {"-c", kAllThere, part.module.substr(0, part.module.rfind('.'))};
  check.insert(check.end(), part.needs.begin(), part.needs.end());
  for (const fs::path& python : pythons) {
    const auto there = RunProgram(python, check, environment, /*quiet=*/true);
    if (!there.ok() || *there != 0) continue;
    std::vector<std::string> words = {"-m", part.module};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return RunProgram(python, std::move(words), environment, /*quiet=*/false, part.printed);
  }
  return absl::UnavailableError(absl::StrCat(
      "this command is a part of the Python package, and ",
      own.empty() ? "no Python here has" : absl::StrCat("OXBOW_PYTHON=", own, " does not have"),
      " it with ", absl::StrJoin(part.needs, ", "),
      ": install these and the folder python of the sources with pip, or name a Python that has "
      "them: "
      "OXBOW_PYTHON=PATH"));
}

}  // namespace oxbow::cli
