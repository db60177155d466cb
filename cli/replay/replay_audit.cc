// SPDX-License-Identifier: Apache-2.0
#include "cli/replay/replay_audit.h"

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cli/plan/bytes_text.h"
#include "cli/replay/replay_rows.h"
#include "core/replay/table_policy.h"

namespace oxbow::cli {
namespace {

class Audit {
 public:
  Audit(ReplaySource& source, size_t findings_max) : source_(source), findings_max_(findings_max) {}

  absl::StatusOr<ReplayAudit> Run() {
    std::string cursor;
    do {
      OXBOW_ASSIGN_OR_RETURN(const v1::VerifyResponse page, source_.Verify(cursor));
      for (const v1::VerifiedEntry& entry : page.entries()) {
        OXBOW_RETURN_IF_ERROR(Look(entry));
      }
      cursor = page.next_cursor();
    } while (!cursor.empty());
    audit_.damaged = damaged_.size();
    return std::move(audit_);
  }

 private:
  absl::Status Look(const v1::VerifiedEntry& entry) {
    ++audit_.entries;
    audit_.bytes += entry.stored_bytes();
    for (const std::string& problem : entry.problems()) {
      Found(entry.entry_id(), entry.table(), problem);
    }
    if (entry.table() != replay::kBestTable || entry.retired() || entry.prompt_id() == 0) {
      return absl::OkStatus();
    }
    const auto [known, first] = of_prompt_.try_emplace(entry.prompt_id(), entry.entry_id());
    if (first || known->second == entry.entry_id()) return absl::OkStatus();
    OXBOW_ASSIGN_OR_RETURN(const bool both, BothLive(known->second, entry.entry_id()));
    if (both) {
      Found(entry.entry_id(), entry.table(),
            absl::StrCat("second live entry of the prompt of entry ", known->second));
    } else {
      known->second = entry.entry_id();
    }
    return absl::OkStatus();
  }

  // A directory does not change under us; in a live buffer the first may have been replaced.
  absl::StatusOr<bool> BothLive(uint64_t first, uint64_t second) {
    if (!source_.live()) return true;
    for (const uint64_t id : {first, second}) {
      OXBOW_ASSIGN_OR_RETURN(const std::vector<v1::ReplayEntry> page,
                             source_.Page("", EntryId(id - 1)));
      if (page.empty() || page.front().entry_id() != id) return false;
    }
    return true;
  }

  void Found(uint64_t entry, const std::string& table, const std::string& problem) {
    damaged_.insert(entry);
    if (audit_.findings.size() < findings_max_) audit_.findings.push_back({entry, table, problem});
  }

  ReplaySource& source_;
  const size_t findings_max_;
  absl::flat_hash_map<uint64_t, uint64_t> of_prompt_;  // Live entries of `best`.
  std::set<uint64_t> damaged_;
  ReplayAudit audit_;
};

}  // namespace

absl::StatusOr<ReplayAudit> AuditReplay(ReplaySource& source, size_t findings_max) {
  return Audit(source, findings_max).Run();
}

std::string AuditText(const ReplayAudit& audit, const std::string& source) {
  std::string text;
  for (const ReplayFinding& finding : audit.findings) {
    absl::StrAppend(&text, "entry ", finding.entry, " (", finding.table, "): ", finding.problem,
                    "\n");
  }
  absl::StrAppend(&text, source, ": ", audit.entries, " entries, ", BytesText(audit.bytes), ", ");
  if (audit.sound()) return absl::StrCat(text, "all sound\n");
  return absl::StrCat(text, audit.damaged,
                      " damaged. Damaged entries leave with time; to be rid of them at once, stop "
                      "the buffer and restore its directory from a copy, or delete it\n");
}

std::string AuditJson(const ReplayAudit& audit, const std::string& source) {
  nlohmann::ordered_json json = {
      {"source", source},         {"sound", audit.sound()},
      {"entries", audit.entries}, {"bytes", audit.bytes},
      {"damaged", audit.damaged}, {"findings", nlohmann::ordered_json::array()}};
  for (const ReplayFinding& finding : audit.findings) {
    json["findings"].push_back({{"entry", std::to_string(finding.entry)},
                                {"table", finding.table},
                                {"problem", finding.problem}});
  }
  return json.dump(2) + "\n";
}

}  // namespace oxbow::cli
