// SPDX-License-Identifier: Apache-2.0
// Reads the facts about this machine that `oxbow doctor` judges.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/oncall/machine_checks.h"

namespace oxbow::cli {

// `directory` need not exist: its nearest existing parent is checked. Binds each of `ports`
// ("host:port") for a moment. The caller fills in the two facts about LibTorch. What cannot be read
// keeps its default.
MachineFacts LookAtMachine(const std::filesystem::path& directory,
                           const std::vector<std::string>& ports);

}  // namespace oxbow::cli
