// SPDX-License-Identifier: Apache-2.0
// A wall clock of processes under test that is set while they run (testing/wall_clock_stepped.cc).
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace oxbow::chaos {

// The library that processes preload; empty in builds without it.
#ifdef OXBOW_STEPPED_CLOCK
inline constexpr char kSteppedClock[] = OXBOW_STEPPED_CLOCK;
#else
inline constexpr char kSteppedClock[] = "";
#endif

class SteppedClock {
 public:
  // `library` is what processes preload, `file` what they read. kUnimplemented without a library: a
  // sanitizer's runtime has to be the first one.
  static absl::StatusOr<std::unique_ptr<SteppedClock>> Make(const std::string& library,
                                                            const std::filesystem::path& file);
  ~SteppedClock();
  SteppedClock(const SteppedClock&) = delete;
  SteppedClock& operator=(const SteppedClock&) = delete;

  // For processes that shall have this clock.
  const std::vector<std::string>& environment() const { return environment_; }

  // All of them are this far from the true time from now on, in whole seconds.
  void Set(absl::Duration ahead);

 private:
  SteppedClock(std::vector<std::string> environment, std::atomic<int64_t>* seconds)
      : environment_(std::move(environment)), seconds_(seconds) {}
  const std::vector<std::string> environment_;
  std::atomic<int64_t>* const seconds_;  // In the mapped file.
};

}  // namespace oxbow::chaos
