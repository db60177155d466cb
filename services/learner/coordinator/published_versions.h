// SPDX-License-Identifier: Apache-2.0
// The weights that are published, and the groups that they may sample. With the weights after L_V
// committed steps, a group of learner step s is within the staleness budget S if s <= L_V + S.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "base/ids.h"

namespace oxbow::learner {

class PublishedVersions {
 public:
  explicit PublishedVersions(uint64_t staleness_max) : staleness_max_(staleness_max) {}

  // Adds a version, made after `committed` steps. Forgets versions that are so old that no result
  // made with them is wanted.
  void Add(PolicyVersion version, LearnerStep committed);

  // Nothing if the version is unknown or forgotten.
  std::optional<LearnerStep> StepOf(PolicyVersion version) const;
  // Whether a group of `step` may be sampled with this version. False for unknown versions.
  bool Serves(PolicyVersion version, LearnerStep step) const;
  // The oldest version that serves `step`, or the newest if none does; 0 before the first.
  PolicyVersion OldestFor(LearnerStep step) const;
  // 0 before the first.
  PolicyVersion newest() const;

 private:
  bool Serves(LearnerStep committed, LearnerStep step) const {
    return step.value <= committed.value + staleness_max_;
  }

  const uint64_t staleness_max_;
  std::map<PolicyVersion, LearnerStep> committed_;
};

}  // namespace oxbow::learner
