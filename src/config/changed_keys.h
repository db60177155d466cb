// SPDX-License-Identifier: Apache-2.0
// The settings that keep a run from going on: what makes the fingerprints of two configs differ
// (config/fingerprint.h), by name.
#pragma once

#include <string>
#include <vector>

#include "oxbow/v1/config.pb.h"

namespace oxbow::config {

// A setting that must not change over a resume, and did.
struct ChangedKey {
  std::string key;     // "optimizer.learning_rate"
  std::string before;  // Values as a resolved config has them.
  std::string now;
};

// In the schema's order; of resolved configs. Empty: a run of one goes on with the other.
std::vector<ChangedKey> ChangedKeys(const v1::RunConfig& before, const v1::RunConfig& now);

// Settings that may differ, but not without a word: evaluations before and after measure other
// things.
std::vector<ChangedKey> ChangedMeasures(const v1::RunConfig& before, const v1::RunConfig& now);

// Keys that may differ, and sections as "eval.*"; no key of which the content must be the same.
std::vector<std::string> FreeKeys();

}  // namespace oxbow::config
