// SPDX-License-Identifier: Apache-2.0
#include "services/learner/coordinator/published_versions.h"

namespace oxbow::learner {

void PublishedVersions::Add(PolicyVersion version, LearnerStep committed) {
  committed_[version] = committed;
  while (committed_.size() > staleness_max_ + 4) committed_.erase(committed_.begin());
}

std::optional<LearnerStep> PublishedVersions::StepOf(PolicyVersion version) const {
  const auto found = committed_.find(version);
  if (found == committed_.end()) return std::nullopt;
  return found->second;
}

bool PublishedVersions::Serves(PolicyVersion version, LearnerStep step) const {
  const std::optional<LearnerStep> committed = StepOf(version);
  return committed.has_value() && Serves(*committed, step);
}

PolicyVersion PublishedVersions::OldestFor(LearnerStep step) const {
  for (const auto& [version, committed] : committed_) {
    if (Serves(committed, step)) return version;
  }
  return newest();
}

PolicyVersion PublishedVersions::newest() const {
  return committed_.empty() ? PolicyVersion(0) : committed_.rbegin()->first;
}

}  // namespace oxbow::learner
