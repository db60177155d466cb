// SPDX-License-Identifier: Apache-2.0
// The best entries of a run's replay buffer, with their pictures, as a section of its page.
//
// Asks the buffer every ten seconds at most, and of pictures only for those that it does not hold.
// The page's threads share it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "cli/replay/replay_rows.h"

namespace oxbow::cli {

class ReplayShelf {
 public:
  explicit ReplayShelf(std::string run_dir, const Clock& clock = Clock::Steady())
      : run_dir_(std::move(run_dir)), clock_(clock) {}

  // Empty for a run without entries, and while its buffer does not answer.
  std::string Section();

  // The bytes of a file that the section names, "77.jpg"; empty: there is no such file.
  std::string Picture(const std::string& name);

 private:
  struct Kept {
    std::string file;  // "77.jpg"
    int width = 0;
    int height = 0;
    std::string bytes;
  };

  // Makes the section, and finds the pictures that it shows.
  absl::Status Look() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string EntryHtml(const ReplayRow& row) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string run_dir_;
  const Clock& clock_;
  absl::Mutex mutex_;
  absl::Duration next_ ABSL_GUARDED_BY(mutex_);
  std::string section_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, Kept> pictures_ ABSL_GUARDED_BY(mutex_);  // By the entry that is shown.
};

}  // namespace oxbow::cli
