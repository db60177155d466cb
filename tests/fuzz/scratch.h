// SPDX-License-Identifier: Apache-2.0
// Where a fuzz target writes the files that it reads.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace oxbow::fuzz {

// A directory of this process, in memory if possible, because every input writes its files. A crash
// leaves it behind.
class Scratch {
 public:
  Scratch() {
    const std::filesystem::path memory = "/dev/shm";
    const bool fast = std::filesystem::is_directory(memory);
    path_ = (fast ? memory : std::filesystem::temp_directory_path()) /
            ("oxbow_fuzz." + std::to_string(getpid()));
    std::filesystem::create_directories(path_);
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  void Write(const std::string& name, std::string_view content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace oxbow::fuzz
