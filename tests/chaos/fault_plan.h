// SPDX-License-Identifier: Apache-2.0
// The faults of a trial, drawn from a seed. Pure: a seed always gives the same trial.
//
// Seeds below kFirstSeedOfAllKinds draw one to three faults of the first kinds, one after another.
// Seeds from there on draw all kinds, one or two faults, and two of them mostly overlap.
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
  kStopLearner,  // SIGSTOP, and later SIGCONT.
  kStopRank,
  kStopWorker,
  kStopBuffer,
  kStopReward,
  kDelay,  // Between one worker and all other processes.
  kDrop,
  kReset,
  kHalfOpen,
  kReplayDiskFull,
  kRunDiskFull,  // The last of the first kinds.
  kNoDescriptorsSupervisor,
  kNoDescriptorsLearner,  // Rank 0.
  kNoDescriptorsWorker,
  kNoDescriptorsBuffer,
  kNoDescriptorsReward,
  kClockForward,  // The wall clock of all processes.
  kClockBack,
  kCrowdLearner,
  kCrowdBuffer,
  kCrowdReward,
  kHangSampler,  // One thread; its process goes on.
  kNanForHalf,   // Half of the images.
  kNanForAll,
  kStopBufferAtCheckpoint,
  kKillBufferAtCheckpoint,
  kSecondSupervisor,
  kDamagedManifest,  // The weights' manifests, on their way to the far worker.
  kDamagedCheckpoint,
  kHugeCheckpointFile,
  kDrainLearner,   // SIGTERM to rank 0, by nobody who tells the supervisor.
  kDrainRank,      // The same to rank 1.
  kDrainStart,     // The same to rank 0 while it starts.
  kLoopWorker,     // One worker is killed at each start.
  kFailingWorker,  // A worker of the harness: each of its leases fails at once.
  kDeafWorker,     // One that reads no answers.
  kOtherRevision,  // One of another revision of the protocol, which knocks.
  kSlowDisk,       // For all processes.
  kNoMemoryReward,
  kNoMemoryBuffer,
  kRunDiskFullForLong,  // Longer than a series of quick restarts.
  kRunDiskErrors,       // EIO, as of a broken disk.
  kRunDiskStale,        // ESTALE, as of a network file system whose server is away.
  kLostDirectory,       // The run's directory; copies of its checkpoints and its buffer are left.
};
inline constexpr int kFirstKinds = 16;
inline constexpr int kFaultKinds = 49;
inline constexpr uint64_t kFirstSeedOfAllKinds = 1000;

std::string_view NameOf(FaultKind kind);

struct Fault {
  FaultKind kind = FaultKind::kKillLearner;
  uint64_t after_steps = 0;  // Steps in the step log before it; 0: as soon as the learner exists.
  absl::Duration delay;      // Additional delay.
  absl::Duration lasts;      // Zero for a kill.
  bool overlaps = false;     // Begins while the fault before it lasts, `delay` after its begin.
};

// Whether the run is asked to end before its last step.
bool Drains(FaultKind kind);
// Whether a reward server of the harness scores the images.
bool NeedsOwnScorer(FaultKind kind);
bool MovesClock(FaultKind kind);
// Whether calls on files of the run's directory fail.
bool FailsFiles(FaultKind kind);
// Whether steps may find the replay buffer away, or a checkpoint without it.
bool KeepsFromBuffer(FaultKind kind);

struct TrialPlan {
  uint64_t seed = 0;
  uint32_t ranks = 1;
  uint32_t workers = 1;     // Workers that the run starts itself.
  bool far_worker = false;  // An additional worker whose network can be broken.
  double replay_fraction = 0;
  uint64_t staleness_max = 0;
  uint32_t publish_every = 1;
  bool deterministic = false;
  bool lora = false;
  uint64_t capacity = 512;
  uint32_t shards = 1;        // The replay buffer's; more than one only with all kinds of faults.
  std::vector<Fault> faults;  // In order of their begin.

  bool Has(FaultKind kind) const;
  bool Any(bool (*what)(FaultKind)) const;  // Whether it is true of one of its faults.
};

// The same for every trial.
inline constexpr uint64_t kTrialSteps = 8;
inline constexpr uint64_t kTrialGroups = 4;
inline constexpr uint64_t kTrialUpdates = 2;
inline constexpr uint64_t kTrialCheckpointEvery = 3;

TrialPlan PlanTrial(uint64_t seed);

// The same run without faults, with one rank and one worker; a deterministic run must equal it.
TrialPlan UndisturbedTwin(const TrialPlan& plan);

// A description in one line.
std::string Describe(const TrialPlan& plan);

// "KEY=VALUE" for --set; without the paths.
std::vector<std::string> Overrides(const TrialPlan& plan);

}  // namespace oxbow::chaos
