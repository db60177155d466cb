// SPDX-License-Identifier: Apache-2.0
// The value of `checkpoint.copy_to`: a second place for each checkpoint.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/statusor.h"

namespace oxbow::config {

struct CopyTarget {
  std::filesystem::path directory;  // Empty: it is a command.
  std::string command;              // For sh; {} stands for the checkpoint's directory.
};

// "command: COMMAND", else a directory. kInvalidArgument for a command without {}.
absl::StatusOr<CopyTarget> ParseCopyTarget(const std::string& text);

}  // namespace oxbow::config
