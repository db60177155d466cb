// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/training_run.h"

#include <signal.h>

#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace oxbow::testing {
namespace {

std::string FirstLine(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

// Words of a command line end with a zero byte each.
bool HasArgument(pid_t process, const std::string& argument) {
  std::ifstream in("/proc/" + std::to_string(process) + "/cmdline");
  for (std::string word; std::getline(in, word, '\0');) {
    if (word.find(argument) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

std::vector<pid_t> ChildrenNamed(pid_t parent, const std::string& name) {
  std::vector<pid_t> found;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/" + std::to_string(parent) + "/task")) {
    std::istringstream children(FirstLine(task.path() / "children"));
    for (pid_t child = 0; children >> child;) {
      if (FirstLine("/proc/" + std::to_string(child) + "/comm") == name) found.push_back(child);
    }
  }
  return found;
}

std::vector<std::string> ReuseOverrides() {
  const std::string source = OXBOW_SOURCE_DIR;
  return {"run.steps=10",
          "model.path=" + source + "/models/digits_sparse",
          "prompts.train=" + source + "/configs/prompts/digits_mixed_tune.jsonl",
          "prompts.eval=" + source + "/configs/prompts/digits_mixed_eval.jsonl",
          "batch.groups=16",
          "reward.terms=[{name: digits_graded, weight: 1}]",
          "replay.fraction=0.25",
          "replay.by_need=true",
          "replay.late_binding=true",
          "replay.added=8",
          "sampling.tail=sde",
          "method.kept_steps=3",
          "replay.branches=3",
          "replay.draw=learnable",
          "prompts.choice=learnable"};
}

TrainingRun::TrainingRun(std::vector<std::string> overrides, std::vector<std::string> flags,
                         const std::string& recipe)
    : run_file_(std::filesystem::path(OXBOW_SOURCE_DIR) / "configs" / "recipes" /
                "digits-op-grpo.yaml") {
  const auto file = std::filesystem::path(OXBOW_SOURCE_DIR) / "configs" / (recipe + ".yaml");
  if (!recipe.empty() && !std::filesystem::exists(run_file_.parent_path() / file.filename())) {
    run_file_ = file;
  } else if (!recipe.empty()) {
    run_file_ = scratch_.path() / "run.yaml";
    std::ofstream(run_file_) << "recipe: " << recipe << "\n";
  }
  Start(std::move(overrides), std::move(flags));
}

void TrainingRun::Resume(std::vector<std::string> overrides) {
  Start(std::move(overrides), {"--resume"});
}

void TrainingRun::Start(std::vector<std::string> overrides, std::vector<std::string> flags) {
  Process::Options options;
  // One by one: GCC 12 warns wrongly of overrun bounds in a list of such strings, depending on
  // their lengths.
  options.argv.push_back(BinaryPath("oxbow"));
  options.argv.emplace_back("train");
  options.argv.push_back(run_file_.string());
  for (std::string& flag : flags) options.argv.push_back(std::move(flag));
  std::vector<std::string> all = SmallRun();
  all.insert(all.end(), overrides.begin(), overrides.end());
  for (std::string& override : all) {
    options.argv.push_back("--set");
    options.argv.push_back(std::move(override));
  }
  absl::StatusOr<std::unique_ptr<Process>> process = Process::Start(std::move(options));
  OXBOW_CHECK(process.ok()) << process.status().ToString();
  process_ = *std::move(process);
}

// Few groups, few images to evaluate, and paths that do not depend on the working directory.
std::vector<std::string> TrainingRun::SmallRun() const {
  const std::string source = OXBOW_SOURCE_DIR;
  return {"run.name=run",
          "run.directory=" + scratch_.path().string(),
          "model.path=" + source + "/models/digits",
          "prompts.train=" + source + "/configs/prompts/digits_train.txt",
          "prompts.eval=" + source + "/configs/prompts/digits_eval.txt",
          "batch.groups=4",
          "eval.images=16",
          "eval.grid_images=16",
          "eval.every=0"};
}

std::vector<std::string> TrainingRun::AllOverrides(
    const std::vector<std::string>& overrides) const {
  std::vector<std::string> all = {"recipe=digits-op-grpo"};
  for (const std::string& override : SmallRun()) all.push_back(override);
  all.insert(all.end(), overrides.begin(), overrides.end());
  return all;
}

bool TrainingRun::WaitForStep(int64_t step, absl::Duration timeout) {
  return files().WaitForStep(step, timeout, [this] { return process_->running(); });
}

bool TrainingRun::KillChild(const std::string& name, int signal, const std::string& argument) {
  for (const pid_t child : ChildrenNamed(process_->pid(), name)) {
    if (HasArgument(child, argument)) return ::kill(child, signal) == 0;
  }
  return false;
}

}  // namespace oxbow::testing
