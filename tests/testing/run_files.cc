// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/run_files.h"

#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "base/check.h"
#include "base/clock.h"

namespace oxbow::testing {
namespace {

// Wakes when something directly in the directory changes. Waits with a limit, never sleeps.
class DirectoryWatch {
 public:
  explicit DirectoryWatch(const std::filesystem::path& directory)
      : descriptor_(inotify_init1(IN_CLOEXEC)) {
    OXBOW_CHECK(descriptor_ >= 0) << "inotify";
    inotify_add_watch(descriptor_, directory.c_str(), IN_CREATE | IN_MODIFY | IN_MOVED_TO);
  }
  ~DirectoryWatch() { ::close(descriptor_); }

  void Wait(absl::Duration timeout) const {
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

std::vector<nlohmann::json> RunFiles::metrics() const {
  std::vector<nlohmann::json> rows;
  std::ifstream in(directory_ / "metrics.jsonl");
  for (std::string line; std::getline(in, line);) {
    nlohmann::json row = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (row.is_object()) rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<double> RunFiles::Series(const std::string& key) const {
  std::vector<double> values;
  for (const nlohmann::json& row : metrics()) {
    if (row.value("step", 0) >= 1 && row.contains(key) && row[key].is_number())
      values.push_back(row[key]);
  }
  return values;
}

std::string RunFiles::FinalWeights() const {
  std::ifstream file(directory_ / "weights" / "transformer" /
                     "diffusion_pytorch_model.safetensors");
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

bool RunFiles::WaitForStep(int64_t step, absl::Duration timeout,
                           const std::function<bool()>& alive) const {
  const Clock& clock = Clock::Steady();
  const absl::Duration deadline = clock.Now() + timeout;
  while (clock.Now() < deadline) {
    // Watch before reading, so that no change is missed. The directory itself may not exist yet.
    const DirectoryWatch watch(std::filesystem::exists(directory_) ? directory_
                                                                   : directory_.parent_path());
    const std::vector<nlohmann::json> rows = metrics();
    if (!rows.empty() && rows.back().value("step", int64_t{-1}) >= step) return true;
    if (!alive()) return false;
    watch.Wait(std::min(deadline - clock.Now(), absl::Milliseconds(500)));
  }
  return false;
}

}  // namespace oxbow::testing
