// SPDX-License-Identifier: Apache-2.0
// The traces of a run, as values: its step log, metrics, logs and the buffer's content. The checker
// judges only these values, so that tests can give it evidence with a planted fault.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace oxbow::chaos {

// The part of a run's config that the promises refer to.
struct RunFacts {
  uint64_t seed = 0;
  uint64_t steps = 0;
  uint64_t groups = 0;   // Per step.
  uint64_t updates = 0;  // Per step: policy versions between two steps.
  uint64_t staleness_max = 0;
  uint64_t capacity = 0;          // Capacity of the replay buffer, all shards together.
  uint64_t shards = 1;            // Each has an equal share, rounded up. 0: there is no buffer.
  std::vector<uint64_t> prompts;  // Ids, in the order of the file.
  bool own_scorer = false;        // The harness scored: the run has no reward server of its own.
  bool drained_alone = false;     // All its faults asked it to end: no step is lost.
  // Why the run may have ended before it was whole: exit code -> words of its last lines.
  std::map<int, std::vector<std::string>> ends;
};

// One group of a line of steps.jsonl.
struct TrainedGroup {
  uint64_t group = 0;
  uint64_t attempt = 0;
  uint64_t lease = 0;
  uint64_t prompt = 0;
  uint64_t version = 0;
  std::optional<uint64_t> entry;  // Replay entry of a replayed head.
  std::string worker;
  bool operator==(const TrainedGroup&) const = default;
};

// A line of steps.jsonl.
struct StepRow {
  uint64_t epoch = 0;
  uint64_t step = 0;
  uint64_t version = 0;
  std::vector<TrainedGroup> groups;
};

// A log line: "event", and its fields by name.
using Event = std::map<std::string, std::string>;

struct StoredEntry {
  uint64_t id = 0;
  uint64_t prompt = 0;
  bool whole = true;  // All its latents are readable.
};

// The outcome of an `oxbow train` on the directory of a run that lived.
struct SecondStart {
  std::string flag;
  std::optional<int> exit_code;  // Absent: it did not end in time.
  std::string said;              // On stderr.
};

// An end of the run from which the harness resumed it.
struct EarlyEnd {
  int exit_code = 0;
  std::string said;         // On the terminal.
  uint64_t step = 0;        // As ended.json says,
  uint64_t checkpoint = 0;  // and the newest checkpoint; 0: there is none.
};

// A checkpoint that was damaged just before the learner was killed.
struct DamagedCheckpoint {
  uint64_t steps = 0;  // Committed ones, of the newest checkpoint at that time.
  uint64_t epoch = 0;  // The learner's at that time.
};

struct Evidence {
  RunFacts facts;
  std::optional<int> exit_code;                              // Absent: the deadline ended the run.
  std::vector<std::string> damage;                           // Unreadable parts, in words.
  uint64_t epochs = 0;                                       // Starts of the learner.
  std::vector<StepRow> step_log;                             // In the file's order.
  std::map<int64_t, std::map<std::string, double>> metrics;  // By committed steps.
  std::map<std::string, std::vector<Event>> logs;            // By process, "rollout_worker-0".
  std::vector<StoredEntry> buffer;                           // Live entries at the end.
  uint64_t checkpoint_steps = 0;                             // Step of the newest checkpoint.
  uint64_t checkpoint_version = 0;
  std::map<std::string, uint64_t>
      resident_peaks;                          // Bytes without pages of files, by kind of process.
  uint64_t libtorch_bytes = 0;                 // As above: what loading LibTorch alone takes.
  std::map<std::string, std::string> weights;  // File below weights/ -> SHA-256.
  std::vector<SecondStart> second_starts;
  std::vector<std::string> neighbours;  // Beside the run's directory, and not the harness's.
  std::vector<EarlyEnd> early_ends;
  std::vector<DamagedCheckpoint> damaged_checkpoints;
};

// Reads the directory of a finished run; the caller fills in the rest. Opens the replay store, so
// no process may have it open.
Evidence ReadEvidence(const std::filesystem::path& run_directory);

}  // namespace oxbow::chaos
