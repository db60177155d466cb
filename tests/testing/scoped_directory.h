// A fresh directory below the system's temporary one, deleted with its content at the end of its
// life.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/check.h"

namespace oxbow::testing {

class ScopedDirectory {
 public:
  ScopedDirectory() {
    std::string pattern = std::filesystem::temp_directory_path() / "oxbow_test_XXXXXX";
    OXBOW_CHECK(mkdtemp(pattern.data()) != nullptr) << pattern;
    path_ = pattern;
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
