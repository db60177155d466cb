// All scorers of this build, by name. A new scorer is a line in scorer_table.cc.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/reward/scorer.h"

namespace oxbow::reward {

// In the order of the table.
std::vector<std::string> ScorerNames();

// kInvalidArgument names the unknown scorer and lists the known ones.
absl::StatusOr<std::unique_ptr<Scorer>> MakeScorer(const std::string& name);

}  // namespace oxbow::reward
