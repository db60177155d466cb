// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/run_checker.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "services/learner/plan/prompt_order.h"
#include "tests/chaos/offer_book.h"

namespace oxbow::chaos {
namespace {

constexpr uint64_t kMega = 1'000'000;
constexpr int kEpochShift = 32;  // A lease id: the epoch in the upper half.

std::string Place(const StepRow& row) {
  return absl::StrCat("step ", row.step, " (epoch ", row.epoch, ")");
}

const std::vector<Event>& LogOf(const Evidence& evidence, const std::string& process) {
  static const std::vector<Event>& none = *new std::vector<Event>;
  const auto found = evidence.logs.find(process);
  return found == evidence.logs.end() ? none : found->second;
}

std::vector<StepRow> History(const Evidence& evidence) {
  Violations seen_elsewhere;
  return CommittedHistory(evidence, seen_elsewhere);
}

// A book of each shard. A line without a shard is of all.
std::vector<OfferBook> BooksOf(const Evidence& evidence) {
  const uint64_t shards = std::max<uint64_t>(1, evidence.facts.shards);
  std::vector<OfferBook> books(shards, OfferBook((evidence.facts.capacity + shards - 1) / shards));
  for (const Event& event : LogOf(evidence, "learner")) {
    for (uint64_t shard = 0; shard < shards; ++shard) {
      if (!event.contains("shard") || NumberIn(event, "shard") == shard) books[shard].Hear(event);
    }
  }
  return books;
}

// The steps from which a start of the learner continued.
std::set<uint64_t> StartsOf(const Evidence& evidence) {
  std::set<uint64_t> starts;
  uint64_t last = 0;
  for (const StepRow& row : evidence.step_log) {
    if (row.epoch != last) starts.insert(row.step);
    last = row.epoch;
  }
  if (evidence.epochs > last) starts.insert(evidence.facts.steps);  // Nothing was left to train.
  return starts;
}

bool SameBits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

}  // namespace

std::vector<StepRow> CommittedHistory(const Evidence& evidence, Violations& violations) {
  std::vector<StepRow> history;
  uint64_t epoch = 0;
  for (const StepRow& row : evidence.step_log) {
    if (row.epoch < epoch) {
      violations.push_back(absl::StrCat(Place(row), " was written after a row of epoch ", epoch));
    }
    if (row.epoch == epoch && row.step < history.size()) {
      violations.push_back(absl::StrCat(Place(row), " was trained twice by one epoch"));
    }
    if (row.step > history.size()) {
      violations.push_back(absl::StrCat(Place(row), " follows step ", history.size(), " - 1"));
    }
    epoch = row.epoch;
    if (row.step < history.size()) history.resize(row.step);
    history.push_back(row);
  }
  return history;
}

Violations CheckOffersSurvive(const Evidence& evidence) {
  Violations violations;
  for (const OfferBook& book : BooksOf(evidence)) {
    const Violations missing = book.Missing(evidence.buffer);
    violations.insert(violations.end(), missing.begin(), missing.end());
  }
  return violations;
}

Violations CheckOneEntryPerPrompt(const Evidence& evidence) {
  Violations violations;
  for (const OfferBook& book : BooksOf(evidence)) {
    violations.insert(violations.end(), book.impossible().begin(), book.impossible().end());
  }
  std::map<uint64_t, uint64_t> of_prompt;
  for (const StoredEntry& entry : evidence.buffer) {
    const auto [first, alone] = of_prompt.emplace(entry.prompt, entry.id);
    if (alone) continue;
    violations.push_back(absl::StrCat("entries ", first->second, " and ", entry.id, " of prompt ",
                                      entry.prompt, " both live"));
  }
  if (evidence.buffer.size() + 1 >
      evidence.facts.capacity + std::max<uint64_t>(1, evidence.facts.shards)) {
    violations.push_back(absl::StrCat("the buffer of ", evidence.facts.capacity, " holds ",
                                      evidence.buffer.size(), " entries"));
  }
  return violations;
}

Violations CheckTrainedOnce(const Evidence& evidence) {
  Violations violations;
  std::map<uint64_t, uint64_t> groups;  // Group -> step that trained it.
  std::map<uint64_t, uint64_t> leases;
  for (const StepRow& row : CommittedHistory(evidence, violations)) {
    for (const TrainedGroup& item : row.groups) {
      const std::string group = absl::StrCat(Place(row), ", group ", item.group, ": ");
      if (const auto [first, once] = groups.emplace(item.group, row.step); !once) {
        violations.push_back(absl::StrCat(group, "was trained by step ", first->second));
      }
      if (const auto [first, once] = leases.emplace(item.lease, row.step); !once) {
        violations.push_back(
            absl::StrCat(group, "lease ", item.lease, " was used by step ", first->second));
      }
      if (item.group / evidence.facts.groups != row.step) {
        violations.push_back(absl::StrCat(group, "is of another step"));
      }
      if (item.lease >> kEpochShift != row.epoch) {
        violations.push_back(absl::StrCat(group, "lease ", item.lease, " is of another epoch"));
      }
      const uint64_t made = item.version / evidence.facts.updates;
      if (made > row.step || row.step - made > evidence.facts.staleness_max) {
        violations.push_back(absl::StrCat(group, "made with the weights after ", made,
                                          " steps, staleness at most ",
                                          evidence.facts.staleness_max));
      }
    }
  }
  return violations;
}

Violations CheckEqualsUndisturbed(const Evidence& evidence, const Evidence& undisturbed) {
  Violations violations;
  for (const auto& [step, expected] : undisturbed.metrics) {
    const auto found = evidence.metrics.find(step);
    if (found == evidence.metrics.end()) continue;  // Promise 5 decides whether it may be missing.
    for (const char* key : {"train/loss", "train/reward_mean", "train/grad_norm"}) {
      const auto wanted = expected.find(key);
      const auto got = found->second.find(key);
      if (wanted == expected.end()) continue;
      if (got != found->second.end() && SameBits(got->second, wanted->second)) continue;
      violations.push_back(
          absl::StrCat("step ", step - 1, ": ", key, " is ",
                       got == found->second.end() ? "missing" : absl::StrCat(got->second),
                       ", undisturbed ", wanted->second));
    }
  }
  for (const auto& [file, hash] : undisturbed.weights) {
    const auto found = evidence.weights.find(file);
    if (found == evidence.weights.end() || found->second != hash) {
      violations.push_back(absl::StrCat("weights/", file, " has other bytes than undisturbed"));
    }
  }
  const std::vector<StepRow> history = History(evidence);
  const std::vector<StepRow> expected = History(undisturbed);
  for (size_t i = 0; i < std::min(history.size(), expected.size()); ++i) {
    for (size_t k = 0; k < std::min(history[i].groups.size(), expected[i].groups.size()); ++k) {
      const TrainedGroup& got = history[i].groups[k];
      const TrainedGroup& wanted = expected[i].groups[k];
      if (std::tie(got.group, got.prompt, got.entry) ==
          std::tie(wanted.group, wanted.prompt, wanted.entry)) {
        continue;
      }
      violations.push_back(absl::StrCat(Place(history[i]), ", group ", got.group, ": prompt ",
                                        got.prompt, ", head ", got.entry.value_or(0),
                                        ", undisturbed ", wanted.prompt, ", head ",
                                        wanted.entry.value_or(0)));
    }
  }
  return violations;
}

Violations CheckEndedWhole(const Evidence& evidence) {
  Violations violations = evidence.damage;
  const uint64_t steps = evidence.facts.steps;
  if (!evidence.exit_code.has_value()) violations.emplace_back("the run did not end in time");
  if (evidence.exit_code.value_or(0) != 0) {
    violations.push_back(absl::StrCat("the run ended with exit code ", *evidence.exit_code));
  }
  const std::vector<StepRow> history = History(evidence);
  if (history.size() != steps) {
    violations.push_back(absl::StrCat("steps trained: ", history.size(), " of ", steps));
  }
  for (const StepRow& row : history) {
    if (row.groups.size() == evidence.facts.groups) continue;
    violations.push_back(absl::StrCat(Place(row), " trained ", row.groups.size(), " groups of ",
                                      evidence.facts.groups));
  }
  if (evidence.checkpoint_steps != steps) {
    violations.push_back(
        absl::StrCat("the newest checkpoint is of step ", evidence.checkpoint_steps));
  }
  const std::set<uint64_t> starts = StartsOf(evidence);
  for (uint64_t step = 1; step <= steps; ++step) {
    // A learner that died between a checkpoint and its metrics line never wrote the line.
    if (evidence.metrics.contains(static_cast<int64_t>(step)) || starts.contains(step)) continue;
    violations.push_back(absl::StrCat("metrics.jsonl has no line of step ", step));
  }
  if (evidence.weights.empty()) violations.emplace_back("no weights were left");
  return violations;
}

Violations CheckWeightsVerified(const Evidence& evidence) {
  using Version = std::pair<uint64_t, uint64_t>;  // Epoch, policy version.
  Violations violations;
  std::map<Version, std::string> published;
  for (const Event& event : LogOf(evidence, "learner")) {
    if (NameOf(event) != "weights published") continue;
    published[{NumberIn(event, "epoch"), NumberIn(event, "policy_version")}] = event.at("sha256");
  }
  std::map<std::string, std::set<Version>> applied;
  for (const auto& [process, events] : evidence.logs) {
    for (const Event& event : events) {
      if (NameOf(event) != "weights applied") continue;
      const Version version{NumberIn(event, "epoch"), NumberIn(event, "policy_version")};
      applied[process].insert(version);
      const auto found = published.find(version);
      const std::string what =
          absl::StrCat(process, " applied version ", version.second, " of epoch ", version.first);
      if (found == published.end()) {
        violations.push_back(absl::StrCat(what, ", which was never published"));
      } else if (found->second != event.at("sha256")) {
        violations.push_back(absl::StrCat(what, " with another hash than was published"));
      }
    }
  }
  for (const StepRow& row : evidence.step_log) {
    for (const TrainedGroup& item : row.groups) {
      if (applied[item.worker].contains({row.epoch, item.version})) continue;
      violations.push_back(absl::StrCat(Place(row), ", group ", item.group, ": ", item.worker,
                                        " sampled with version ", item.version,
                                        ", which it never applied"));
    }
  }
  return violations;
}

std::map<std::string, uint64_t> ResidentBytesMax(uint64_t libtorch_bytes) {
  return {{"oxbow", libtorch_bytes + 240 * kMega},
          {"learner", libtorch_bytes + 640 * kMega},
          {"rollout_worker", libtorch_bytes + 640 * kMega},
          {"replay_buffer", 150 * kMega},
          {"reward_server", libtorch_bytes + 90 * kMega}};
}

Violations CheckMemory(const Evidence& evidence) {
  Violations violations;
  for (const auto& [kind, bytes_max] : ResidentBytesMax(evidence.libtorch_bytes)) {
    if (kind == "reward_server" && evidence.facts.own_scorer) continue;
    if (kind == "replay_buffer" && evidence.facts.shards == 0) continue;
    const auto found = evidence.resident_peaks.find(kind);
    if (found == evidence.resident_peaks.end()) {
      violations.push_back(absl::StrCat("the memory of ", kind, " was never seen"));
    } else if (found->second > bytes_max) {
      violations.push_back(absl::StrCat(kind, " had ", found->second / kMega,
                                        " MB resident, at most ", bytes_max / kMega));
    }
  }
  return violations;
}

namespace {

// The prompts that a step takes from the order at `position`, which advances: those of groups
// without a head. `heads` says which groups have one.
std::vector<uint64_t> PromptsTaken(const Evidence& evidence, const StepRow& row,
                                   const std::vector<bool>& heads,
                                   learner::PromptPosition& position) {
  std::vector<v1::Prompt> prompts(evidence.facts.prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) prompts[i].set_id(evidence.facts.prompts[i]);
  learner::PromptOrder order(std::move(prompts), evidence.facts.seed, position);
  std::set<uint64_t> taken;
  for (size_t i = 0; i < row.groups.size(); ++i) {
    if (heads[i]) taken.insert(row.groups[i].prompt);
  }
  std::vector<uint64_t> ids;
  for (size_t i = 0; i < row.groups.size(); ++i) {
    ids.push_back(heads[i] ? row.groups[i].prompt : order.TakeNext(taken).id());
  }
  position = order.position();
  return ids;
}

std::vector<uint64_t> PromptsOf(const StepRow& row) {
  std::vector<uint64_t> ids;
  for (const TrainedGroup& item : row.groups) ids.push_back(item.prompt);
  return ids;
}

// If a head was not available, its group may have taken a prompt from the order: both cases are
// tried.
void CheckOrderOfStep(const Evidence& evidence, const StepRow& row, const std::set<uint64_t>& lost,
                      learner::PromptPosition& position, Violations& violations) {
  std::vector<bool> heads;
  std::vector<bool> with_lost;
  for (const TrainedGroup& item : row.groups) {
    heads.push_back(item.entry.has_value());
    with_lost.push_back(item.entry.has_value() || lost.contains(item.group));
  }
  const std::vector<uint64_t> trained = PromptsOf(row);
  learner::PromptPosition with_lost_position = position;
  const std::vector<uint64_t> expected = PromptsTaken(evidence, row, heads, position);
  if (expected == trained) return;
  if (PromptsTaken(evidence, row, with_lost, with_lost_position) == trained) {
    position = with_lost_position;
    return;
  }
  for (size_t i = 0; i < trained.size(); ++i) {
    if (trained[i] == expected[i]) continue;
    violations.push_back(absl::StrCat(Place(row), ", group ", row.groups[i].group, ": prompt ",
                                      trained[i], ", in the run's order it is ", expected[i]));
  }
}

void CheckCounters(const Evidence& evidence, const StepRow& row, Violations& violations) {
  if (row.version != row.step * evidence.facts.updates) {
    violations.push_back(absl::StrCat(Place(row), ": version ", row.version, ", expected ",
                                      row.step * evidence.facts.updates));
  }
  const auto line = evidence.metrics.find(static_cast<int64_t>(row.step + 1));
  if (line == evidence.metrics.end() || !line->second.contains("rollout/staleness_max")) return;
  uint64_t stalest = 0;
  for (const TrainedGroup& item : row.groups) {
    const uint64_t made = item.version / evidence.facts.updates;
    stalest = std::max(stalest, row.step - std::min(row.step, made));
  }
  const double reported = line->second.at("rollout/staleness_max");
  if (reported == static_cast<double>(stalest)) return;
  violations.push_back(absl::StrCat(Place(row), ": staleness ", stalest, ", reported ", reported));
}

}  // namespace

Violations CheckOrderAndCounters(const Evidence& evidence) {
  std::set<uint64_t> lost;
  for (const Event& event : LogOf(evidence, "learner")) {
    if (NameOf(event) == "group goes on without its replayed head") {
      lost.insert(NumberIn(event, "group"));
    }
  }
  Violations violations;
  learner::PromptPosition position;
  for (const StepRow& row : History(evidence)) {
    CheckOrderOfStep(evidence, row, lost, position, violations);
    CheckCounters(evidence, row, violations);
  }
  if (evidence.checkpoint_version != evidence.checkpoint_steps * evidence.facts.updates) {
    violations.push_back(absl::StrCat("the checkpoint of step ", evidence.checkpoint_steps,
                                      " has version ", evidence.checkpoint_version));
  }
  return violations;
}

Violations CheckSecondStarts(const Evidence& evidence) {
  Violations violations;
  for (const SecondStart& start : evidence.second_starts) {
    const std::string what =
        absl::StrCat("a second oxbow train", start.flag.empty() ? "" : " with ", start.flag,
                     " on the live run ");
    if (!start.exit_code.has_value()) {
      violations.push_back(absl::StrCat(what, "did not end"));
    } else if (*start.exit_code != kExitUnavailable) {
      violations.push_back(absl::StrCat(what, "ended with exit code ", *start.exit_code));
    } else if (!absl::StrContains(start.said, "the run is live")) {
      violations.push_back(absl::StrCat(what, "did not say why it ended: ", start.said));
    }
  }
  for (const std::string& name : evidence.neighbours) {
    violations.push_back(absl::StrCat("beside the run's directory there is ", name));
  }
  return violations;
}

Violations CheckDamagedNotLoaded(const Evidence& evidence) {
  Violations violations;
  for (const DamagedCheckpoint& damaged : evidence.damaged_checkpoints) {
    const auto first = std::find_if(evidence.step_log.begin(), evidence.step_log.end(),
                                    [&](const StepRow& row) { return row.epoch > damaged.epoch; });
    if (first == evidence.step_log.end() || first->step != damaged.steps) continue;
    violations.push_back(absl::StrCat("epoch ", first->epoch, " continued from step ",
                                      damaged.steps, ", whose checkpoint was damaged"));
  }
  return violations;
}

Violations CheckEarlyEnds(const Evidence& evidence) {
  Violations violations;
  for (const EarlyEnd& end : evidence.early_ends) {
    const auto found = evidence.facts.ends.find(end.exit_code);
    if (end.exit_code == kExitDrained && end.step != end.checkpoint) {
      violations.push_back(absl::StrCat("drained at step ", end.step,
                                        ", and the newest checkpoint is of step ", end.checkpoint));
    }
    const bool explained =
        found != evidence.facts.ends.end() &&
        std::any_of(found->second.begin(), found->second.end(),
                    [&](const std::string& words) { return absl::StrContains(end.said, words); });
    if (explained) continue;
    violations.push_back(
        absl::StrCat("the run ended early with exit code ", end.exit_code, ": ", end.said));
  }
  std::set<uint64_t> trained;
  for (const StepRow& row : evidence.step_log) {
    if (trained.insert(row.step).second || !evidence.facts.drained_alone) continue;
    violations.push_back(absl::StrCat(Place(row), " was trained again after a drain"));
  }
  return violations;
}

}  // namespace oxbow::chaos
