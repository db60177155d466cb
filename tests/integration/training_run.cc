#include "tests/integration/training_run.h"

#include <poll.h>
#include <signal.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "base/check.h"
#include "base/clock.h"

namespace oxbow::testing {
namespace {

std::string FirstLine(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

// Wakes when something below the directory's first level changes. Waits with a bound, never sleeps.
class DirectoryWatch {
 public:
  explicit DirectoryWatch(const std::filesystem::path& directory)
      : descriptor_(inotify_init1(IN_CLOEXEC)) {
    OXBOW_CHECK(descriptor_ >= 0) << "inotify";
    inotify_add_watch(descriptor_, directory.c_str(), IN_CREATE | IN_MODIFY | IN_MOVED_TO);
  }
  ~DirectoryWatch() { ::close(descriptor_); }

  void Wait(absl::Duration timeout) {
    pollfd entry{.fd = descriptor_, .events = POLLIN, .revents = 0};
    if (::poll(&entry, 1, static_cast<int>(absl::ToInt64Milliseconds(timeout))) > 0) {
      char events[4096];
      [[maybe_unused]] const ssize_t got = ::read(descriptor_, events, sizeof events);
    }
  }

 private:
  const int descriptor_;
};

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

TrainingRun::TrainingRun(std::vector<std::string> overrides, std::vector<std::string> flags) {
  Start(std::move(overrides), std::move(flags));
}

void TrainingRun::Resume(std::vector<std::string> overrides) {
  Start(std::move(overrides), {"--resume"});
}

void TrainingRun::Start(std::vector<std::string> overrides, std::vector<std::string> flags) {
  Process::Options options;
  options.argv = {BinaryPath("oxbow"), "train",
                  std::string(OXBOW_SOURCE_DIR) + "/configs/digits.yaml"};
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

// Few pictures to evaluate, and paths that do not depend on the working directory.
std::vector<std::string> TrainingRun::SmallRun() const {
  const std::string source = OXBOW_SOURCE_DIR;
  return {"run.name=run",
          "run.directory=" + scratch_.path().string(),
          "model.path=" + source + "/models/digits",
          "prompts.train=" + source + "/configs/prompts/digits_train.txt",
          "prompts.eval=" + source + "/configs/prompts/digits_eval.txt",
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
  const Clock& clock = Clock::Steady();
  const absl::Duration deadline = clock.Now() + timeout;
  while (clock.Now() < deadline) {
    // Watch before reading, so that no change falls between. The directory itself may still be
    // missing.
    DirectoryWatch watch(std::filesystem::exists(directory()) ? directory() : scratch_.path());
    const std::vector<nlohmann::json> rows = metrics();
    if (!rows.empty() && rows.back().value("step", int64_t{-1}) >= step) return true;
    if (!process_->running()) return false;
    watch.Wait(std::min(deadline - clock.Now(), absl::Milliseconds(500)));
  }
  return false;
}

bool TrainingRun::KillChild(const std::string& name, int signal) {
  const std::vector<pid_t> children = ChildrenNamed(process_->pid(), name);
  return !children.empty() && ::kill(children.front(), signal) == 0;
}

std::vector<nlohmann::json> TrainingRun::metrics() const {
  std::vector<nlohmann::json> rows;
  std::ifstream in(directory() / "metrics.jsonl");
  for (std::string line; std::getline(in, line);) {
    nlohmann::json row = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (row.is_object()) rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<double> TrainingRun::Series(const std::string& key) const {
  std::vector<double> values;
  for (const nlohmann::json& row : metrics()) {
    if (row.value("step", 0) >= 1 && row.contains(key) && row[key].is_number())
      values.push_back(row[key]);
  }
  return values;
}

std::string TrainingRun::FinalWeights() const {
  std::ifstream file(directory() / "weights" / "transformer" /
                     "diffusion_pytorch_model.safetensors");
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace oxbow::testing
