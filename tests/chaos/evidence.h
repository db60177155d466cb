// What a run left, as values: its step log, metrics, logs and the buffer's content. The checker
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
  uint64_t capacity = 0;          // Capacity of the replay buffer.
  std::vector<uint64_t> prompts;  // Ids, in the order of the file.
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

struct Evidence {
  RunFacts facts;
  std::optional<int> exit_code;                              // Absent: the deadline ended the run.
  std::vector<std::string> damage;                           // What could not be read, in words.
  uint64_t epochs = 0;                                       // Starts of the learner.
  std::vector<StepRow> step_log;                             // In the file's order.
  std::map<int64_t, std::map<std::string, double>> metrics;  // By committed steps.
  std::map<std::string, std::vector<Event>> logs;            // By process, "rollout_worker-0".
  std::vector<StoredEntry> buffer;                           // Live entries at the end.
  uint64_t checkpoint_steps = 0;                             // Step of the newest checkpoint.
  uint64_t checkpoint_version = 0;
  std::map<std::string, uint64_t> resident_peaks;  // Bytes, by kind of process.
  std::map<std::string, std::string> weights;      // File below weights/ -> SHA-256.
};

// Reads the directory of a finished run; the caller fills in the rest. Opens the replay store, so
// no process may have it open.
Evidence ReadEvidence(const std::filesystem::path& run_directory);

}  // namespace oxbow::chaos
