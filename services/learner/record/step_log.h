// SPDX-License-Identifier: Apache-2.0
// The groups that each learner step trains on, written and fsynced before the step has any effect.
//
// runs/NAME/steps.jsonl has one line per attempt at a step. If a resumed run repeats a step, the
// line with the highest epoch counts:
//
//   {"epoch": 1, "step": 7, "version": 14, "groups": [{"group": 56, "attempt": 1, "lease": ..,
//    "prompt": .., "worker": "..", "version": 14, "entry": ..}],
//    "left_out": [57], "reused": [41],     group ids, if the step chose its groups
//    "added": [..]}                        entries, if stored successes stand beside the groups
//
// Leases, prompts and entries have ids of 64 bits, which are strings.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file.h"
#include "base/ids.h"
#include "services/learner/coordinator/group_assembler.h"

namespace oxbow::learner {

// How a step's groups differ from those that were made for it.
struct StepChoice {
  std::vector<GroupId> left_out;  // Groups of this step that it does not train on.
  std::vector<GroupId> reused;    // Groups of earlier steps.
  // Entries of the replayed samples that no worker made, by group: they came whole from the buffer.
  std::map<GroupId, EntryId> whole;
  std::map<GroupId, EntryId> late;  // Entries that fresh groups got after they had failed.
  std::vector<EntryId> added;       // Entries that stand beside the groups, in their order.
};

class StepLog {
 public:
  // Asked before each line. An error: the log belongs to another start of the run.
  using MayWrite = std::function<absl::Status()>;

  // Opens the log and removes a last line that is not whole: its step had no effect.
  static absl::StatusOr<StepLog> Open(
      const std::filesystem::path& path, MayWrite may_write = [] { return absl::OkStatus(); });

  // Appends the manifest of a step and fsyncs it. Returns the error of `may_write`, if any, and
  // then writes nothing.
  absl::Status Freeze(Epoch epoch, LearnerStep step, PolicyVersion version,
                      const std::vector<ReceivedGroup>& groups, const StepChoice& choice = {});

 private:
  StepLog(AppendFile file, MayWrite may_write)
      : file_(std::move(file)), may_write_(std::move(may_write)) {}
  AppendFile file_;
  MayWrite may_write_;
};

// Counts this start of the run in `path` and returns its number, which is beyond `seen`: an earlier
// start that the file may not know. Durable.
absl::StatusOr<Epoch> NextEpoch(const std::filesystem::path& path, uint64_t seen = 0);

}  // namespace oxbow::learner
