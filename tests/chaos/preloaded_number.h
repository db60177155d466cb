// SPDX-License-Identifier: Apache-2.0
// A number that processes under test read all the time, in a file that they map because they
// preload a library: how far their wall clock is ahead in seconds (testing/wall_clock_stepped.cc),
// by how many milliseconds their disk is slower (testing/slow_sync.cc).
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace oxbow::chaos {

// The library that processes preload, which has both; empty in builds without it.
#ifdef OXBOW_PRELOADED
inline constexpr char kPreloaded[] = OXBOW_PRELOADED;
#else
inline constexpr char kPreloaded[] = "";
#endif

inline constexpr char kClockAhead[] = "OXBOW_TEST_CLOCK";
inline constexpr char kSyncDelay[] = "OXBOW_TEST_SYNC";

class PreloadedNumber {
 public:
  // `library` is what processes preload, `variable` what tells them the file. kUnimplemented
  // without a library: a sanitizer's runtime has to be the first one.
  static absl::StatusOr<std::unique_ptr<PreloadedNumber>> Make(const std::string& library,
                                                               const std::string& variable,
                                                               const std::filesystem::path& file);
  ~PreloadedNumber();
  PreloadedNumber(const PreloadedNumber&) = delete;
  PreloadedNumber& operator=(const PreloadedNumber&) = delete;

  // For processes that shall read it.
  const std::vector<std::string>& environment() const { return environment_; }

  // For all of them, from now on.
  void Set(int64_t number) { number_->store(number); }

 private:
  PreloadedNumber(std::vector<std::string> environment, std::atomic<int64_t>* number)
      : environment_(std::move(environment)), number_(number) {}
  const std::vector<std::string> environment_;
  std::atomic<int64_t>* const number_;  // In the mapped file.
};

}  // namespace oxbow::chaos
