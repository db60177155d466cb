// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/fault_plan.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/philox.h"

namespace oxbow::chaos {
namespace {

constexpr std::array<std::string_view, kFaultKinds> kNames = {
    "kill learner rank 0",
    "kill learner rank 1",
    "kill worker",
    "kill replay buffer",
    "kill reward server",
    "stop learner rank 0",
    "stop learner rank 1",
    "stop worker",
    "stop replay buffer",
    "stop reward server",
    "network: delay",
    "network: drop",
    "network: reset",
    "network: half open",
    "disk of the replay buffer full",
    "disk of the run full",
    "no descriptors: supervisor",
    "no descriptors: learner rank 0",
    "no descriptors: worker",
    "no descriptors: replay buffer",
    "no descriptors: reward server",
    "clock: an hour forward",
    "clock: an hour back",
    "crowd at the learner",
    "crowd at the replay buffer",
    "crowd at the reward server",
    "sampler hangs",
    "scores: NaN for half",
    "scores: NaN for all",
    "replay buffer stopped at a checkpoint",
    "replay buffer killed at a checkpoint",
    "second supervisor",
    "network: damaged weight manifest",
    "checkpoint damaged",
    "checkpoint file over 4 GiB",
    "drain: learner rank 0",
    "drain: learner rank 1",
    "drain: learner while it starts",
    "worker dies at every start",
    "worker that fails at once",
    "worker that reads nothing",
    "worker of another revision",
    "disk slow to sync",
    "no memory: reward server",
    "no memory: replay buffer",
    "disk of the run full for long",
    "disk of the run: EIO",
    "disk of the run: ESTALE",
    "run directory lost"};

bool IsNetwork(FaultKind kind) {
  return (kind >= FaultKind::kDelay && kind <= FaultKind::kHalfOpen) ||
         kind == FaultKind::kDamagedManifest;
}

bool IsMoment(FaultKind kind) {
  switch (kind) {
    case FaultKind::kKillBufferAtCheckpoint:
    case FaultKind::kSecondSupervisor:
    case FaultKind::kDamagedCheckpoint:
    case FaultKind::kHugeCheckpointFile:
    case FaultKind::kDrainLearner:
    case FaultKind::kDrainRank:
    case FaultKind::kDrainStart:
    case FaultKind::kLostDirectory:
      return true;
    default:
      return kind <= FaultKind::kKillReward;
  }
}

constexpr int kBufferClass = 3;
constexpr int kDiskClass = 4;
constexpr int kWorkersOfHarness = 9;

// The class of things that a fault takes hold of. Two faults of one class do not overlap: what one
// takes back, the other may need.
int ClassOf(FaultKind kind) {
  switch (kind) {
    case FaultKind::kNoDescriptorsSupervisor:
      return 0;
    case FaultKind::kKillLearner:
    case FaultKind::kKillRank:
    case FaultKind::kStopLearner:
    case FaultKind::kStopRank:
    case FaultKind::kNoDescriptorsLearner:
    case FaultKind::kCrowdLearner:
    case FaultKind::kDamagedCheckpoint:
    case FaultKind::kHugeCheckpointFile:
    case FaultKind::kDrainLearner:
    case FaultKind::kDrainRank:
    case FaultKind::kDrainStart:
    case FaultKind::kLostDirectory:
      return 1;
    case FaultKind::kKillWorker:
    case FaultKind::kStopWorker:
    case FaultKind::kNoDescriptorsWorker:
    case FaultKind::kHangSampler:
    case FaultKind::kLoopWorker:
      return 2;
    case FaultKind::kKillBuffer:
    case FaultKind::kStopBuffer:
    case FaultKind::kNoDescriptorsBuffer:
    case FaultKind::kNoMemoryBuffer:
    case FaultKind::kCrowdBuffer:
    case FaultKind::kStopBufferAtCheckpoint:
    case FaultKind::kKillBufferAtCheckpoint:
      return kBufferClass;
    case FaultKind::kReplayDiskFull:
    case FaultKind::kRunDiskFull:
    case FaultKind::kSlowDisk:
    case FaultKind::kRunDiskFullForLong:
    case FaultKind::kRunDiskErrors:
    case FaultKind::kRunDiskStale:
      return kDiskClass;
    case FaultKind::kClockForward:
    case FaultKind::kClockBack:
      return 5;
    case FaultKind::kSecondSupervisor:
      return 6;
    case FaultKind::kFailingWorker:
    case FaultKind::kDeafWorker:
    case FaultKind::kOtherRevision:
      return kWorkersOfHarness;
    default:
      return IsNetwork(kind) ? 7 : 8;  // 8: reward servers.
  }
}

Fault DrawFault(RandomStream& random, uint64_t after_steps) {
  Fault fault;
  fault.kind = static_cast<FaultKind>(random.NextBelow(kFirstKinds));
  fault.after_steps = after_steps;
  // A start takes longer than a step.
  fault.delay = absl::Milliseconds(random.NextBelow(after_steps == 0 ? 1500 : 250));
  if (!IsMoment(fault.kind)) fault.lasts = absl::Milliseconds(200 + random.NextBelow(2800));
  return fault;
}

// One to three faults, each at a later step than the one before.
std::vector<Fault> DrawFaults(RandomStream& random) {
  std::vector<Fault> faults;
  uint64_t after_steps = random.NextBelow(kTrialSteps - 1);
  const uint64_t count = 1 + random.NextBelow(3);
  for (uint64_t i = 0; i < count && after_steps < kTrialSteps; ++i) {
    faults.push_back(DrawFault(random, after_steps));
    after_steps += 1 + random.NextBelow(3);
  }
  return faults;
}

bool IsBound(FaultKind kind) {
  switch (kind) {
    case FaultKind::kStopBufferAtCheckpoint:
    case FaultKind::kKillBufferAtCheckpoint:
    case FaultKind::kSecondSupervisor:
    case FaultKind::kDamagedCheckpoint:
    case FaultKind::kHugeCheckpointFile:
    case FaultKind::kLostDirectory:
      return true;
    default:
      return false;
  }
}

// The steps before a fault that belongs to a checkpoint, or to a run that goes on for long enough;
// others may begin at any time.
std::optional<uint64_t> BoundTo(RandomStream& random, FaultKind kind) {
  const uint64_t checkpoint = kTrialCheckpointEvery * (1 + random.NextBelow(2));
  switch (kind) {
    case FaultKind::kStopBufferAtCheckpoint:
      return checkpoint - 1;  // It is away before the checkpoint begins.
    case FaultKind::kKillBufferAtCheckpoint:
      return checkpoint;
    case FaultKind::kSecondSupervisor:
      return random.NextBelow(3);
    case FaultKind::kDamagedCheckpoint:
    case FaultKind::kHugeCheckpointFile:
    case FaultKind::kLostDirectory:
      return random.NextBelow(4) == 0 ? kTrialCheckpointEvery + 1 : 2 * kTrialCheckpointEvery + 1;
    default:
      return std::nullopt;
  }
}

Fault DrawOfAllKinds(RandomStream& random) {
  Fault fault;
  const bool old = random.NextBelow(4) == 0;
  fault.kind =
      static_cast<FaultKind>(old ? random.NextBelow(kFirstKinds)
                                 : kFirstKinds + random.NextBelow(kFaultKinds - kFirstKinds));
  const std::optional<uint64_t> bound = BoundTo(random, fault.kind);
  fault.after_steps = bound.value_or(random.NextBelow(kTrialSteps - 1));
  if (!bound.has_value()) {
    fault.delay = absl::Milliseconds(random.NextBelow(fault.after_steps == 0 ? 1500 : 250));
  }
  // Long enough for leases that are renewed for ever to end, sometimes.
  const uint64_t longest = fault.kind == FaultKind::kHangSampler ? 12'000 : 3'000;
  if (!IsMoment(fault.kind)) {
    fault.lasts = absl::Milliseconds(200 + random.NextBelow(longest - 200));
  }
  // Seven deaths take 12 s by themselves.
  if (fault.kind == FaultKind::kLoopWorker) fault.lasts += absl::Seconds(13);
  if (fault.kind == FaultKind::kDrainStart) fault.after_steps = 0;
  if (fault.kind == FaultKind::kRunDiskFullForLong) fault.lasts += absl::Seconds(12);
  return fault;
}

// Whether two faults can be in one run.
bool Fit(const Fault& a, const Fault& b) {
  for (const auto& [one, other] : {std::pair(a.kind, b.kind), std::pair(b.kind, a.kind)}) {
    if (NeedsOwnScorer(one) && ClassOf(other) == ClassOf(one)) return false;  // No such process.
    // The run goes on at other addresses, which a worker that it did not start does not know. A
    // start on a disk that answers with errors ends at once, and is the caller's to repeat.
    if (one == FaultKind::kLostDirectory &&
        (IsNetwork(other) || ClassOf(other) == kWorkersOfHarness || ClassOf(other) == kDiskClass)) {
      return false;
    }
  }
  return ClassOf(a.kind) != ClassOf(b.kind) || a.after_steps != b.after_steps;
}

// One fault or two. The second begins while the first lasts if it may begin at any time.
std::vector<Fault> DrawFaultsOfAllKinds(RandomStream& random) {
  std::vector<Fault> faults = {DrawOfAllKinds(random)};
  Fault second = DrawOfAllKinds(random);
  const bool overlap = random.NextBelow(3) > 0;
  const uint64_t part = random.NextBelow(1000);
  if (random.NextBelow(4) == 0 || !Fit(faults[0], second)) return faults;
  if (IsBound(second.kind) && !IsBound(faults[0].kind)) std::swap(second, faults[0]);
  Fault& first = faults[0];
  second.overlaps = !IsBound(second.kind) && ClassOf(first.kind) != ClassOf(second.kind) &&
                    (overlap || first.after_steps == second.after_steps);
  if (second.overlaps) {
    second.after_steps = first.after_steps;
    second.delay = first.lasts * static_cast<double>(part) / 1000;
  } else if (second.after_steps < first.after_steps) {
    std::swap(first, second);
  }
  faults.push_back(second);
  return faults;
}

}  // namespace

bool Drains(FaultKind kind) {
  return kind == FaultKind::kDrainLearner || kind == FaultKind::kDrainRank ||
         kind == FaultKind::kDrainStart;
}

bool NeedsOwnScorer(FaultKind kind) {
  return kind == FaultKind::kNanForHalf || kind == FaultKind::kNanForAll;
}

bool KeepsFromBuffer(FaultKind kind) {
  switch (kind) {
    case FaultKind::kKillBuffer:
    case FaultKind::kStopBuffer:
    case FaultKind::kReplayDiskFull:
    case FaultKind::kRunDiskFull:
    case FaultKind::kNoDescriptorsLearner:
    case FaultKind::kNoDescriptorsBuffer:
    case FaultKind::kNoMemoryBuffer:
    case FaultKind::kSlowDisk:
    case FaultKind::kCrowdBuffer:
    case FaultKind::kStopBufferAtCheckpoint:
    case FaultKind::kKillBufferAtCheckpoint:
      return true;
    default:
      return false;
  }
}

bool MovesClock(FaultKind kind) {
  return kind == FaultKind::kClockForward || kind == FaultKind::kClockBack;
}

bool FailsFiles(FaultKind kind) {
  return kind == FaultKind::kRunDiskFullForLong || kind == FaultKind::kRunDiskErrors ||
         kind == FaultKind::kRunDiskStale;
}

std::string_view NameOf(FaultKind kind) { return kNames[static_cast<size_t>(kind)]; }

bool TrialPlan::Has(FaultKind kind) const {
  return std::any_of(faults.begin(), faults.end(), [&](const Fault& f) { return f.kind == kind; });
}

bool TrialPlan::Any(bool (*what)(FaultKind)) const {
  return std::any_of(faults.begin(), faults.end(), [&](const Fault& f) { return what(f.kind); });
}

TrialPlan PlanTrial(uint64_t seed) {
  RandomStream random({.seed = seed});
  TrialPlan plan{
      .seed = seed,
      .faults = seed < kFirstSeedOfAllKinds ? DrawFaults(random) : DrawFaultsOfAllKinds(random)};
  const bool two = random.NextBelow(2) == 1;
  const bool at_rank = plan.Has(FaultKind::kKillRank) || plan.Has(FaultKind::kStopRank) ||
                       plan.Has(FaultKind::kDrainRank);
  plan.ranks = two || at_rank ? 2 : 1;
  plan.far_worker = plan.Any(IsNetwork);
  plan.workers = static_cast<uint32_t>(1 + random.NextBelow(plan.far_worker ? 2 : 3));
  plan.replay_fraction = 0.25 * static_cast<double>(random.NextBelow(3));
  // A run that replays nothing has no buffer to disturb.
  const bool at_buffer = plan.Any([](FaultKind kind) { return ClassOf(kind) == kBufferClass; });
  if (at_buffer && plan.replay_fraction == 0) plan.replay_fraction = 0.25;
  constexpr std::pair<uint64_t, uint32_t> kOffPolicy[] = {{0, 1}, {0, 1}, {1, 1}, {1, 2}};
  std::tie(plan.staleness_max, plan.publish_every) = kOffPolicy[random.NextBelow(4)];
  plan.deterministic = plan.staleness_max == 0 && random.NextBelow(3) > 0;
  plan.lora = random.NextBelow(2) == 1;
  plan.capacity = random.NextBelow(2) == 1 ? 512 : 6;
  if (seed >= kFirstSeedOfAllKinds && plan.replay_fraction > 0) {
    plan.shards = static_cast<uint32_t>(1 + random.NextBelow(3));
  }
  return plan;
}

TrialPlan UndisturbedTwin(const TrialPlan& plan) {
  TrialPlan twin = plan;
  twin.seed = 0;
  twin.ranks = 1;
  twin.workers = 1;
  twin.far_worker = false;
  twin.faults.clear();
  return twin;
}

std::string Describe(const TrialPlan& plan) {
  std::string text =
      absl::StrFormat("seed %d: %d rank(s), %d worker(s)%s, replay %.2f of %d, S %d, v %d, %s%s;",
                      plan.seed, plan.ranks, plan.workers, plan.far_worker ? " + 1" : "",
                      plan.replay_fraction, plan.capacity, plan.staleness_max, plan.publish_every,
                      plan.lora ? "LoRA" : "full", plan.deterministic ? ", deterministic" : "");
  if (plan.shards > 1) absl::StrAppend(&text, " ", plan.shards, " shards;");
  for (const Fault& fault : plan.faults) {
    absl::StrAppend(&text, fault.overlaps ? " + [" : " [", std::string(NameOf(fault.kind)), " ",
                    absl::FormatDuration(fault.delay),
                    fault.overlaps ? " later" : absl::StrCat(" after step ", fault.after_steps));
    if (fault.lasts > absl::ZeroDuration()) {
      absl::StrAppend(&text, " for ", absl::FormatDuration(fault.lasts));
    }
    absl::StrAppend(&text, "]");
  }
  return text;
}

std::vector<std::string> Overrides(const TrialPlan& plan) {
  std::vector<std::string> overrides = {"eval.every=0",
                                        "batch.group_size=4",
                                        "services.reward_servers=2",
                                        "services.lease_seconds=2",
                                        "services.rpc_timeout_seconds=5",
                                        "services.groups_in_flight=2",
                                        "services.log_level=debug",
                                        "services.log_format=json",
                                        "learner.rank_timeout_seconds=3",
                                        "model.lora.rank=4",
                                        "model.lora.alpha=8"};
  const auto set = [&overrides](const char* key, const auto& value) {
    overrides.push_back(absl::StrCat(key, "=", value));
  };
  set("run.seed", 7);
  set("checkpoint.every", kTrialCheckpointEvery);
  set("run.steps", kTrialSteps);
  set("run.deterministic", plan.deterministic ? "true" : "false");
  set("batch.groups", kTrialGroups);
  set("batch.updates", kTrialUpdates);
  set("learner.ranks", plan.ranks);
  set("services.rollout_workers", plan.workers);
  set("replay.fraction", plan.replay_fraction);
  set("replay.capacity", plan.capacity);
  set("services.replay_shards", plan.shards);
  set("off_policy.staleness_max", plan.staleness_max);
  set("off_policy.publish_every", plan.publish_every);
  set("model.trained", plan.lora ? "lora" : "full");
  return overrides;
}

}  // namespace oxbow::chaos
