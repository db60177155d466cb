// Reads what `oxbow doctor` judges of this machine from the system.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/oncall/machine_checks.h"

namespace oxbow::cli {

// `directory` need not exist: the nearest one above it counts. Binds each of `ports` ("host:port")
// for a moment. LibTorch's two facts are the caller's to fill. What cannot be read stays as it is.
MachineFacts LookAtMachine(const std::filesystem::path& directory,
                           const std::vector<std::string>& ports);

// Bytes that the control group at `group` (a directory of the unified hierarchy) may still take:
// pages of files that the kernel would drop first do not count as taken. Nothing without a limit.
std::optional<uint64_t> LeftInControlGroup(const std::filesystem::path& group);

}  // namespace oxbow::cli
