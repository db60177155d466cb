// SPDX-License-Identifier: Apache-2.0
// `oxbow fetch`: has the Hugging Face Hub's own client get what a run names by id. oxbow itself
// asks no network.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace oxbow::cli {

struct FetchOptions {
  std::string file;              // The run file.
  std::vector<std::string> set;  // KEY=VALUE over it.
  bool print = false;            // Show the commands, and run none.
};

// Says of each repository where the cache has it, or fetches the part that the run reads: with the
// program `hf` of `environment`'s PATH, else with the module huggingface_hub of its python3. With
// neither, and with `print`, writes the commands. Then says which files that no id names are
// missing, and what was published for them. kUnavailable without a client, and if one fails;
// kNotFound if such a file is missing (not with `print`); else the errors of LoadRunConfig.
absl::Status Fetch(const FetchOptions& options, const std::vector<std::string>& environment,
                   std::ostream& out);

}  // namespace oxbow::cli
