// SPDX-License-Identifier: Apache-2.0
// A new directory below the system's temporary one, deleted with its content by the destructor.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/check.h"

namespace oxbow::testing {

class ScopedDirectory {
 public:
  explicit ScopedDirectory(
      const std::filesystem::path& parent = std::filesystem::temp_directory_path()) {
    std::string pattern = parent / "oxbow_test_XXXXXX";
    OXBOW_CHECK(mkdtemp(pattern.data()) != nullptr) << pattern;
    path_ = pattern;
  }
  // In memory if possible: for tests that sync thousands of times.
  static std::filesystem::path Memory() {
    return std::filesystem::is_directory("/dev/shm") ? std::filesystem::path("/dev/shm")
                                                     : std::filesystem::temp_directory_path();
  }
  ~ScopedDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScopedDirectory(const ScopedDirectory&) = delete;
  ScopedDirectory& operator=(const ScopedDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace oxbow::testing
