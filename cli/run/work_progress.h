// SPDX-License-Identifier: Apache-2.0
// Progress on stderr of a command that works for long, from its beginning to its end:
//
//   eval  loading the model  0:12
//   eval  drawing and scoring 37/128 pictures  3.2 pictures/s  ETA 0:28
//
// On a terminal one line is rewritten in place, and gone at the end. Elsewhere a line is written
// every ten seconds, so nothing of what is over sooner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"

namespace oxbow::cli {

class WorkProgress {
 public:
  struct Options {
    std::string command;  // "eval"
    // The terminal's; nothing: there is none.
    std::function<std::optional<size_t>()> columns;
  };

  // On stderr.
  explicit WorkProgress(std::string command);
  // `clock` and `out` outlive it. Nothing is shown but by ShowNow where `runs` is false.
  WorkProgress(Options options, const Clock& clock, std::ostream& out, bool runs);
  ~WorkProgress();

  // From now on this is done: "loading the model".
  void Begin(std::string doing);
  // `done` of `total` `items` are; a part of one counts as a part. A total of 0 shows nothing.
  void Count(double done, uint64_t total, const std::string& items);

  void ShowNow();

 private:
  struct Work {
    std::string doing = "starting";
    absl::Duration begun;
    std::string items;
    double done = 0;
    uint64_t total = 0;
  };

  std::string Line(absl::Duration now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Show() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run();

  const Options options_;
  const Clock& clock_;
  std::ostream& out_;
  absl::Mutex mutex_;
  Work work_ ABSL_GUARDED_BY(mutex_);
  bool line_in_place_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // A network or a reward may work for minutes without a word.
};

}  // namespace oxbow::cli
