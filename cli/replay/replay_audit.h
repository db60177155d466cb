// SPDX-License-Identifier: Apache-2.0
// `oxbow replay verify`: reads everything that a replay buffer holds, page by page, and names what
// is not sound.
//
// Finds what is wrong with an entry by itself (services/buffer/verification.h), and two live
// entries of one prompt in the table `best`. A live buffer changes while it is read, so a pair that
// was seen on two pages counts only if both are still there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/replay/replay_source.h"

namespace oxbow::cli {

struct ReplayFinding {
  uint64_t entry = 0;
  std::string table;
  std::string problem;
};

struct ReplayAudit {
  uint64_t entries = 0;  // Checked, of all tables, retired ones included.
  uint64_t bytes = 0;
  uint64_t damaged = 0;                 // Entries with a finding.
  std::vector<ReplayFinding> findings;  // At most `findings_max` of them.
  bool sound() const { return damaged == 0; }
};

inline constexpr size_t kFindingsMax = 1000;

// Memory: two integers an entry, and the findings.
absl::StatusOr<ReplayAudit> AuditReplay(ReplaySource& source, size_t findings_max = kFindingsMax);

std::string AuditText(const ReplayAudit& audit, const std::string& source);
std::string AuditJson(const ReplayAudit& audit, const std::string& source);

}  // namespace oxbow::cli
