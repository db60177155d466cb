// What each learner step was made of, written and fsynced before the step has any effect.
//
// runs/NAME/steps.jsonl, one line per attempt at a step; for a step that a resumed run repeats, the
// line of the highest epoch is the one that counts:
//
//   {"epoch": 1, "step": 7, "version": 14, "groups": [{"group": 56, "attempt": 1, "lease": ..,
//    "prompt": .., "worker": "..", "version": 14, "entry": ..}],
//    "left_out": [57], "reused": [41]}     groups, where the step chose
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file.h"
#include "base/ids.h"
#include "services/learner/desk/group_assembler.h"

namespace oxbow::learner {

// What a step trains on beside the groups that were made for it.
struct StepChoice {
  std::vector<GroupId> left_out;  // Of its own.
  std::vector<GroupId> reused;    // Of earlier steps.
};

class StepLog {
 public:
  // A last line that was cut short is taken away: its step had no effect.
  static absl::StatusOr<StepLog> Open(const std::filesystem::path& path);

  // Appends the manifest of a step and fsyncs it.
  absl::Status Freeze(Epoch epoch, LearnerStep step, PolicyVersion version,
                      const std::vector<ReceivedGroup>& groups, const StepChoice& choice = {});

 private:
  explicit StepLog(AppendFile file) : file_(std::move(file)) {}
  AppendFile file_;
};

// Counts this start of the run in `path` and returns its number: 1 for the first. Durable.
absl::StatusOr<Epoch> NextEpoch(const std::filesystem::path& path);

}  // namespace oxbow::learner
