// SPDX-License-Identifier: Apache-2.0
#include "services/learner/record/step_log.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/json.h"
#include "base/status_macros.h"
#include "services/learner/coordinator/group_check.h"

namespace oxbow::learner {

namespace {

// Takes away a last line that was not written whole: a full disk or a crash may have cut it off, or
// a power loss may have left it with other bytes than were written.
absl::Status DropDamagedEnd(const std::filesystem::path& path) {
  absl::StatusOr<LinesFromEnd> lines = LinesFromEnd::Open(path);
  if (absl::IsNotFound(lines.status())) return absl::OkStatus();
  OXBOW_RETURN_IF_ERROR(lines.status());
  OXBOW_ASSIGN_OR_RETURN(std::optional<FileLine> last, lines->Next());
  if (last && !last->whole) {
    OXBOW_RETURN_IF_ERROR(CutFile(path, last->begin));
    OXBOW_ASSIGN_OR_RETURN(last, lines->Next());
  }
  if (!last || nlohmann::json::accept(last->text)) return absl::OkStatus();
  return CutFile(path, last->begin);
}

// An id of 64 bits: most readers of JSON keep 53 of a number.
std::string Text(uint64_t id) { return absl::StrCat(id); }

}  // namespace

absl::StatusOr<StepLog> StepLog::Open(const std::filesystem::path& path, MayWrite may_write) {
  OXBOW_RETURN_IF_ERROR(DropDamagedEnd(path));
  OXBOW_ASSIGN_OR_RETURN(AppendFile file, AppendFile::Open(path));
  return StepLog(std::move(file), std::move(may_write));
}

absl::Status StepLog::Freeze(Epoch epoch, LearnerStep step, PolicyVersion version,
                             const std::vector<ReceivedGroup>& groups, const StepChoice& choice) {
  OXBOW_RETURN_IF_ERROR(may_write_());
  nlohmann::json list = nlohmann::json::array();
  for (const ReceivedGroup& received : groups) {
    if (received.group.trajectories().empty()) continue;  // A place beside the step's groups.
    const GroupId id(received.group.group_id());
    nlohmann::json item = {{"group", received.group.group_id()},
                           {"attempt", received.attempt},
                           {"lease", Text(received.group.lease_id())},
                           {"prompt", Text(received.group.prompt().id())},
                           {"worker", received.group.worker_id()}};
    for (const PolicyVersion made : BehaviourVersions(received.group)) item["version"] = made.value;
    for (const v1::Trajectory& trajectory : received.group.trajectories()) {
      if (trajectory.replayed()) item["entry"] = Text(trajectory.entry_id());
    }
    if (const auto whole = choice.whole.find(id); whole != choice.whole.end()) {
      item["entry"] = Text(whole->second.value);
    }
    if (const auto late = choice.late.find(id); late != choice.late.end()) {
      item["late_entry"] = Text(late->second.value);
    }
    list.push_back(std::move(item));
  }
  nlohmann::json line = {{"epoch", epoch.value},
                         {"step", step.value},
                         {"version", version.value},
                         {"groups", std::move(list)}};
  for (const auto& [key, ids] :
       {std::pair("left_out", &choice.left_out), std::pair("reused", &choice.reused)}) {
    for (const GroupId id : *ids) line[key].push_back(id.value);
  }
  for (const EntryId entry : choice.added) line["added"].push_back(Text(entry.value));
  return file_.Append(JsonText(line) + "\n", /*sync=*/true);
}

absl::StatusOr<Epoch> NextEpoch(const std::filesystem::path& path, uint64_t seen) {
  uint64_t last = 0;
  const absl::StatusOr<std::string> content = ReadFile(path);
  if (content.ok() &&
      (!absl::SimpleAtoi(*content, &last) || last == std::numeric_limits<uint64_t>::max())) {
    return absl::DataLossError(
        absl::StrCat("epoch file holds no number of a start: ", path.string()));
  }
  if (!content.ok() && !absl::IsNotFound(content.status())) return content.status();
  last = std::max(last, seen);
  OXBOW_RETURN_IF_ERROR(WriteFileAtomically(path, absl::StrCat(last + 1, "\n")));
  return Epoch(last + 1);
}

}  // namespace oxbow::learner
