// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/evidence.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/sha256.h"
#include "io/metrics_file.h"
#include "metrics/step_metrics.h"
#include "run/endpoints_file.h"
#include "services/buffer/replay_store.h"
#include "services/learner/checkpoint/checkpoint_store.h"

namespace oxbow::chaos {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr uint32_t kShardsMax = 64;           // As a config allows.
constexpr uint64_t kAnyCapacity = 1'000'000;  // A smaller one would evict entries to be reported.

// Ids of 64 bits are strings; 0 for what is no id.
uint64_t IdOf(const json& item, const char* key) {
  uint64_t id = 0;
  return absl::SimpleAtoi(item.value(key, std::string()), &id) ? id : 0;
}

std::optional<StepRow> RowOf(const std::string& line) {
  const json object = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object() || !object.contains("groups")) return std::nullopt;
  StepRow row{.epoch = object.value("epoch", uint64_t{0}),
              .step = object.value("step", uint64_t{0}),
              .version = object.value("version", uint64_t{0}),
              .groups = {}};
  for (const json& item : object["groups"]) {
    TrainedGroup group{.group = item.value("group", uint64_t{0}),
                       .attempt = item.value("attempt", uint64_t{0}),
                       .lease = IdOf(item, "lease"),
                       .prompt = IdOf(item, "prompt"),
                       .version = item.value("version", uint64_t{0}),
                       .entry = std::nullopt,
                       .worker = item.value("worker", "")};
    if (item.contains("entry")) group.entry = IdOf(item, "entry");
    row.groups.push_back(std::move(group));
  }
  return row;
}

void ReadStepLog(const fs::path& path, Evidence& evidence) {
  const absl::StatusOr<std::string> content = ReadFile(path);
  if (!content.ok()) return evidence.damage.push_back(content.status().ToString());
  std::istringstream lines(*content);
  uint64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::optional<StepRow> row = RowOf(line);
    if (row.has_value()) {
      evidence.step_log.push_back(*std::move(row));
    } else if (!lines.eof()) {  // A crash may cut off the last line.
      evidence.damage.push_back(absl::StrCat("steps.jsonl:", number, ": not a step: ", line));
    }
  }
}

void ReadMetricLines(const fs::path& path, Evidence& evidence) {
  const auto lines = io::ReadMetrics(path);
  if (!lines.ok()) return evidence.damage.push_back(lines.status().ToString());
  for (const auto& line : *lines) {
    const auto step = static_cast<int64_t>(line.at(metric::kStep));
    evidence.metrics[step].insert(line.begin(), line.end());
  }
}

// Start-up errors and similar lines are not JSON and are skipped.
void ReadLogs(const fs::path& directory, Evidence& evidence) {
  std::error_code error;
  for (const auto& file : fs::directory_iterator(directory, error)) {
    std::vector<Event>& events = evidence.logs[file.path().stem().string()];
    std::istringstream lines(ReadFile(file.path()).value_or(""));
    for (std::string line; std::getline(lines, line);) {
      const json object = json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (!object.is_object()) continue;
      Event event;
      for (const auto& [key, value] : object.items()) {
        if (value.is_string()) event[key] = value.get<std::string>();
      }
      events.push_back(std::move(event));
    }
  }
}

void ReadBuffer(const fs::path& directory, Evidence& evidence) {
  const auto damaged = [&](const absl::Status& status) {
    evidence.damage.push_back(absl::StrCat("replay store: ", status.ToString()));
  };
  const auto store = buffer::ReplayStore::Open(
      {.directory = directory, .tables = {replay::BestTable(kAnyCapacity)}});
  if (!store.ok()) return damaged(store.status());
  EntryId after(0);
  while (true) {
    const auto views = (*store)->List(/*limit=*/1000, after);
    if (!views.ok()) return damaged(views.status());
    if (views->empty()) return;
    for (const buffer::Entry& entry : *views) {
      const auto latents = (*store)->ReadLatents(entry.id, 0, entry.latent_count);
      const bool whole = latents.ok() && latents->size() == entry.latent_count * entry.latent_bytes;
      evidence.buffer.push_back({entry.id.value, entry.prompt.value, whole});
      after = entry.id;
    }
  }
}

// RUN/replay, or RUN/replay-00, RUN/replay-01, ... as far as there are any.
std::vector<fs::path> Shards(const fs::path& run_directory) {
  std::vector<fs::path> some = run::ReplayDirectories(run_directory, kShardsMax);
  std::erase_if(some, [](const fs::path& shard) { return !fs::exists(shard); });
  return some.empty() ? run::ReplayDirectories(run_directory, 1) : some;
}

void ReadCheckpoint(const fs::path& directory, Evidence& evidence) {
  const auto checkpoint = learner::CheckpointStore(directory, /*keep=*/1).LoadNewest();
  if (!checkpoint.ok()) return evidence.damage.push_back(checkpoint.status().ToString());
  evidence.checkpoint_steps = checkpoint->state.committed_steps;
  evidence.checkpoint_version = checkpoint->state.policy_version;
}

void ReadWeights(const fs::path& directory, Evidence& evidence) {
  std::error_code error;
  for (const auto& file : fs::recursive_directory_iterator(directory, error)) {
    if (!file.is_regular_file()) continue;
    const std::string content = ReadFile(file.path()).value_or("");
    evidence.weights[fs::relative(file.path(), directory).string()] = Sha256Hex(content);
  }
}

}  // namespace

Evidence ReadEvidence(const fs::path& run_directory) {
  Evidence evidence;
  ReadStepLog(run_directory / "steps.jsonl", evidence);
  ReadMetricLines(run_directory / io::kMetricsFile, evidence);
  ReadLogs(run_directory / "logs", evidence);
  for (const fs::path& shard : Shards(run_directory)) ReadBuffer(shard, evidence);
  ReadCheckpoint(run_directory / "checkpoints", evidence);
  ReadWeights(run_directory / "weights", evidence);
  const std::string epoch = ReadFile(run_directory / "epoch").value_or("");
  if (!absl::SimpleAtoi(epoch, &evidence.epochs)) evidence.damage.push_back("epoch: no number");
  return evidence;
}

}  // namespace oxbow::chaos
