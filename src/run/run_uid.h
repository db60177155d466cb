// SPDX-License-Identifier: Apache-2.0
// The uid of a run: which run it is, whatever its name and wherever its directory lies.
//
// runs/NAME/run_uid holds "NAME-" and 16 random hex digits. It is made once, by the first start of
// the run's learner, and goes where the directory goes. A directory that was deleted and made again
// is another run.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/statusor.h"

namespace oxbow::run {

// Reads the uid, or makes it durably where there is none. kDataLoss if the file holds no uid.
absl::StatusOr<std::string> RunUidOf(const std::filesystem::path& run_directory,
                                     const std::string& run_name);

}  // namespace oxbow::run
