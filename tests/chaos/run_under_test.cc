// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/run_under_test.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"
#include "tests/integration/training_run.h"

namespace oxbow::chaos {
namespace {

constexpr absl::Duration kBetweenLooks = absl::Milliseconds(10);
constexpr absl::Duration kBetweenMemoryLooks = absl::Milliseconds(150);

}  // namespace

uint64_t AnonymousBytesOf(pid_t pid) {
  std::ifstream status(absl::StrCat("/proc/", pid, "/status"));
  for (std::string word; status >> word;) {
    uint64_t kibibytes = 0;
    if (word == "RssAnon:" && status >> kibibytes) return kibibytes * 1024;
  }
  return 0;
}

ProcessHandle::ProcessHandle(pid_t pid)
    : descriptor_(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))) {}

ProcessHandle::~ProcessHandle() {
  if (descriptor_ >= 0) close(descriptor_);
}

bool ProcessHandle::Signal(int signal) const {
  return descriptor_ >= 0 && syscall(SYS_pidfd_send_signal, descriptor_, signal, nullptr, 0) == 0;
}

RunUnderTest::RunUnderTest(Options options)
    : options_(std::move(options)), end_(Clock::Steady().Now() + options_.deadline) {
  Start();
}

void RunUnderTest::Resume() {
  if (std::find(options_.argv.begin(), options_.argv.end(), "--resume") == options_.argv.end()) {
    options_.argv.emplace_back("--resume");
  }
  Start();
}

void RunUnderTest::Start() {
  testing::Process::Options start;
  start.environment = options_.environment;
  start.argv = options_.argv;
  start.argv.insert(start.argv.begin(), (options_.binaries / "oxbow").string());
  auto process = testing::Process::Start(std::move(start));
  OXBOW_CHECK(process.ok()) << process.status().ToString();
  process_ = *std::move(process);
}

bool RunUnderTest::Await(const std::function<bool()>& condition, absl::Duration timeout) {
  const Clock& clock = Clock::Steady();
  const absl::Duration end = std::min(end_, clock.Now() + timeout);
  while (true) {
    if (condition()) return true;
    if (clock.Now() >= end) return false;
    if (clock.Now() >= next_look_) LookAtMemory();
    // Waits for the end of the run, after which further checks are useless.
    if (process_->WaitExit(std::min(kBetweenLooks, end - clock.Now())).ok()) return false;
  }
}

std::optional<int> RunUnderTest::AwaitEnd() {
  Await([] { return false; });
  const auto code = process_->WaitExit(absl::ZeroDuration());
  if (code.ok()) return *code;
  process_->Kill(SIGKILL);
  process_->WaitExit(absl::Seconds(10)).IgnoreError();
  return std::nullopt;
}

RunUnderTest::Progress RunUnderTest::progress() {
  const std::filesystem::path path = options_.directory / "steps.jsonl";
  std::error_code error;
  const uint64_t bytes = std::filesystem::file_size(path, error);
  if (error || bytes == bytes_read_) return progress_;
  const std::string content = ReadFile(path).value_or("");
  bytes_read_ = content.size();
  progress_ = {};
  std::istringstream lines(content);
  for (std::string line; std::getline(lines, line);) {
    const auto row = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!row.is_object()) continue;
    ++progress_.lines;
    progress_.steps = std::max(progress_.steps, row.value("step", uint64_t{0}) + 1);
    progress_.epoch = row.value("epoch", uint64_t{0});
  }
  return progress_;
}

std::vector<pid_t> RunUnderTest::Processes(const std::string& kind, int rank) const {
  std::vector<pid_t> found;
  if (!process_->running()) return found;
  try {
    found = testing::ChildrenNamed(process_->pid(), kind);
    if (rank > 0 && !found.empty()) found = testing::ChildrenNamed(found.front(), kind);
  } catch (const std::filesystem::filesystem_error&) {
    return {};  // It ended in the meantime.
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::string RunUnderTest::Endpoint(const std::string& name) const {
  std::ifstream in(options_.directory / "endpoints.json");
  const auto endpoints = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (!endpoints.is_object()) return "";
  for (const auto& service : endpoints["services"]) {
    if (service["name"] == name) return service["grpc"];
  }
  return "";
}

void RunUnderTest::LookAtMemory() {
  next_look_ = Clock::Steady().Now() + kBetweenMemoryLooks;
  const auto look = [this](const std::string& kind, const std::vector<pid_t>& pids) {
    for (const pid_t pid : pids) {
      if (const uint64_t bytes = AnonymousBytesOf(pid); bytes > 0) {
        resident_peaks_[kind] = std::max(resident_peaks_[kind], bytes);
      }
    }
  };
  look("oxbow", {process_->pid()});
  for (const char* kind : {"learner", "rollout_worker", "replay_buffer", "reward_server"}) {
    look(kind, Processes(kind));
  }
  look("learner", Processes("learner", /*rank=*/1));
}

}  // namespace oxbow::chaos
