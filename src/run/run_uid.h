// SPDX-License-Identifier: Apache-2.0
// The uid of a run: which run it is, whatever its name and wherever its directory lies.
//
// runs/NAME/run_uid holds "NAME-" and 16 random hex digits. It is made once, by the first start of
// the run's learner, and goes where the directory goes. Checkpoints say it, too: a run that goes on
// from one is that run, wherever the checkpoint was kept. A directory that was deleted and made
// again is another run.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/statusor.h"

namespace oxbow::run {

// The uid in the run's directory. kNotFound if there is none yet, kDataLoss if the file holds none.
absl::StatusOr<std::string> ReadRunUid(const std::filesystem::path& run_directory);

// The uid `known`, that of the run's checkpoint; without one that in the directory, or a new one.
// The directory then has it, durably. Errors as ReadRunUid.
absl::StatusOr<std::string> RunUidOf(const std::filesystem::path& run_directory,
                                     const std::string& run_name, const std::string& known = "");

// Whether a run of this name may have the uid.
bool IsUidOf(const std::string& run_name, const std::string& uid);

}  // namespace oxbow::run
