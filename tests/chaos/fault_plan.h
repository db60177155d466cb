// What is done to which run, drawn from a seed. Pure: a seed is a trial, for ever.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"

namespace oxbow::chaos {

enum class FaultKind {
  kKillLearner,  // Rank 0.
  kKillRank,     // Rank 1.
  kKillWorker,
  kKillBuffer,
  kKillReward,
  kStopLearner,  // SIGSTOP, and SIGCONT after a while.
  kStopRank,
  kStopWorker,
  kStopBuffer,
  kStopReward,
  kDelay,  // Between one worker and everybody else.
  kDrop,
  kReset,
  kHalfOpen,
  kReplayDiskFull,
  kRunDiskFull,
};
inline constexpr int kFaultKinds = 16;

std::string_view NameOf(FaultKind kind);

struct Fault {
  FaultKind kind = FaultKind::kKillLearner;
  uint64_t after_steps = 0;  // In the step log; 0: as soon as there is a learner.
  absl::Duration delay;      // From then.
  absl::Duration lasts;      // Zero for a kill.
};

struct TrialPlan {
  uint64_t seed = 0;
  uint32_t ranks = 1;
  uint32_t workers = 1;     // That the run starts itself.
  bool far_worker = false;  // One more, whose network can be broken.
  double replay_fraction = 0;
  uint64_t staleness_max = 0;
  uint32_t publish_every = 1;
  bool deterministic = false;
  bool lora = false;
  uint64_t capacity = 512;
  std::vector<Fault> faults;  // One after another.

  bool Has(FaultKind kind) const;
};

// Of every trial.
inline constexpr uint64_t kTrialSteps = 8;
inline constexpr uint64_t kTrialGroups = 4;
inline constexpr uint64_t kTrialUpdates = 2;

TrialPlan PlanTrial(uint64_t seed);

// The same run with nothing done to it, one rank and one worker: what a deterministic one must
// equal.
TrialPlan UndisturbedTwin(const TrialPlan& plan);

// One line.
std::string Describe(const TrialPlan& plan);

// "KEY=VALUE" for --set, without paths.
std::vector<std::string> Overrides(const TrialPlan& plan);

}  // namespace oxbow::chaos
