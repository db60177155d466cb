#include "tests/chaos/fault_plan.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/philox.h"

namespace oxbow::chaos {
namespace {

constexpr std::array<std::string_view, kFaultKinds> kNames = {
    "kill learner rank 0", "kill learner rank 1", "kill worker",
    "kill replay buffer",  "kill reward server",  "stop learner rank 0",
    "stop learner rank 1", "stop worker",         "stop replay buffer",
    "stop reward server",  "network: delay",      "network: drop",
    "network: reset",      "network: half open",  "disk of the replay buffer full",
    "disk of the run full"};

bool IsKill(FaultKind kind) { return kind <= FaultKind::kKillReward; }
bool IsNetwork(FaultKind kind) { return kind >= FaultKind::kDelay && kind <= FaultKind::kHalfOpen; }

Fault DrawFault(RandomStream& random, uint64_t after_steps) {
  Fault fault;
  fault.kind = static_cast<FaultKind>(random.NextBelow(kFaultKinds));
  fault.after_steps = after_steps;
  // A start takes longer than a step.
  fault.delay = absl::Milliseconds(random.NextBelow(after_steps == 0 ? 1500 : 250));
  if (!IsKill(fault.kind)) fault.lasts = absl::Milliseconds(200 + random.NextBelow(2800));
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

}  // namespace

std::string_view NameOf(FaultKind kind) { return kNames[static_cast<size_t>(kind)]; }

bool TrialPlan::Has(FaultKind kind) const {
  return std::any_of(faults.begin(), faults.end(), [&](const Fault& f) { return f.kind == kind; });
}

TrialPlan PlanTrial(uint64_t seed) {
  RandomStream random({.seed = seed});
  TrialPlan plan{.seed = seed, .faults = DrawFaults(random)};
  const bool two = random.NextBelow(2) == 1;
  plan.ranks = two || plan.Has(FaultKind::kKillRank) || plan.Has(FaultKind::kStopRank) ? 2 : 1;
  plan.far_worker = std::any_of(plan.faults.begin(), plan.faults.end(),
                                [](const Fault& fault) { return IsNetwork(fault.kind); });
  plan.workers = static_cast<uint32_t>(1 + random.NextBelow(plan.far_worker ? 2 : 3));
  plan.replay_fraction = 0.25 * static_cast<double>(random.NextBelow(3));
  constexpr std::pair<uint64_t, uint32_t> kOffPolicy[] = {{0, 1}, {0, 1}, {1, 1}, {1, 2}};
  std::tie(plan.staleness_max, plan.publish_every) = kOffPolicy[random.NextBelow(4)];
  plan.deterministic = plan.staleness_max == 0 && random.NextBelow(3) > 0;
  plan.lora = random.NextBelow(2) == 1;
  plan.capacity = random.NextBelow(2) == 1 ? 512 : 6;
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
  for (const Fault& fault : plan.faults) {
    absl::StrAppend(&text, " [", std::string(NameOf(fault.kind)), " ",
                    absl::FormatDuration(fault.delay), " after step ", fault.after_steps);
    if (fault.lasts > absl::ZeroDuration()) {
      absl::StrAppend(&text, " for ", absl::FormatDuration(fault.lasts));
    }
    absl::StrAppend(&text, "]");
  }
  return text;
}

std::vector<std::string> Overrides(const TrialPlan& plan) {
  std::vector<std::string> overrides = {"eval.every=0",
                                        "checkpoint.every=3",
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
  set("run.steps", kTrialSteps);
  set("run.deterministic", plan.deterministic ? "true" : "false");
  set("batch.groups", kTrialGroups);
  set("batch.updates", kTrialUpdates);
  set("learner.ranks", plan.ranks);
  set("services.rollout_workers", plan.workers);
  set("replay.fraction", plan.replay_fraction);
  set("replay.capacity", plan.capacity);
  set("off_policy.staleness_max", plan.staleness_max);
  set("off_policy.publish_every", plan.publish_every);
  set("model.trained", plan.lora ? "lora" : "full");
  return overrides;
}

}  // namespace oxbow::chaos
