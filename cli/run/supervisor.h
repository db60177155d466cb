// SPDX-License-Identifier: Apache-2.0
// Decides what happens when a child of `oxbow train` dies or the run is asked to stop. Pure: it
// takes events and returns actions; time comes from the clock.
//
//   running   a dead child is started again after a pause that grows, the learner with --resume.
//             While another of its kind lives (workers, reward servers, shards) that is all. The
//             only one of its kind ends the run when the same start would end the same way
//             (IsFinal), or when its deaths have gone on for `patience` without a committed step
//   draining  after the first stop signal: the learner finishes its step; others are kept alive
//   stopping  the learner is gone: the rest get SIGTERM, and SIGKILL after a grace period
//   done      no child is left; exit_code() is the result
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"

namespace oxbow::cli {

enum class FleetRole { kBuffer, kReward, kLearner, kWorker };

class Supervisor {
 public:
  struct Options {
    absl::Duration patience = absl::Minutes(30);  // From the first death since a committed step,
    int restarts_min = 5;                         // and after no fewer starts again.
    absl::Duration backoff_first = absl::Milliseconds(200);
    absl::Duration backoff_max = absl::Minutes(1);
    absl::Duration backoff_beside_max = absl::Minutes(10);  // While another of its kind lives.
    absl::Duration steady = absl::Minutes(1);  // Ready for so long: the next pause is short again.
    absl::Duration drain_max = absl::Seconds(120);
    absl::Duration stop_grace = absl::Seconds(15);
  };
  enum class Phase { kRunning, kDraining, kStopping, kDone };
  enum class Do { kStart, kDrain, kTerminate, kKill };
  struct Action {
    Do what;
    std::string child;
    bool resume = false;  // For kStart: the learner continues from its checkpoint.
    bool operator==(const Action&) const = default;
  };

  Supervisor(Options options, const Clock& clock);

  // Records that a child has been started.
  void Started(const std::string& child, FleetRole role);
  // Records that a child could not be started, for a reason that passes: it is tried again soon,
  // and that is no death.
  void StartFailed(const std::string& child);
  // Records that a child has printed READY: from then on a learner can be drained.
  void Ready(const std::string& child);
  std::vector<Action> Exited(const std::string& child, int code);
  // Reports how many steps the run has committed. More than ever before is progress.
  void Committed(uint64_t steps) { committed_ = std::max(committed_, steps); }
  // Takes the system's signal numbers. The second signal kills. SIGUSR1 and SIGUSR2 end the run
  // with kExitDrained, others with 128 + their number.
  std::vector<Action> StopRequested(int signal);
  // Reports that the Drain call did not reach the learner.
  std::vector<Action> DrainFailed();
  // Ends the run because of an error outside any child.
  std::vector<Action> Abort(int exit_code, const std::string& why);
  // Returns the restarts that are due and the actions for deadlines that have passed.
  std::vector<Action> Tick();

  Phase phase() const { return phase_; }
  bool alive(const std::string& child) const { return children_.at(child).alive; }
  // "ended with exit code 5, 3 times in a row", of a child that has died and starts again; and
  // when.
  std::string TroubleOf(const std::string& child) const;
  absl::Duration Pause(const std::string& child) const;
  int exit_code() const { return exit_code_; }
  const std::string& failure() const { return failure_; }            // Empty: no failure.
  const std::string& failed_child() const { return failed_child_; }  // Its log explains it.

 private:
  struct Child {
    FleetRole role;
    bool alive = true;
    bool ready = false;
    bool was_ready = false;
    absl::Duration ready_at = absl::ZeroDuration();
    int code = 0;    // The last one it died with.
    int quick = 0;   // Deaths without a steady life between them.
    int deaths = 0;  // Since the run had committed `committed` steps,
    uint64_t committed = 0;
    absl::Duration since = absl::ZeroDuration();  // the first of them.
    bool not_finite = false;                      // One of them was of a number that is not finite.
    absl::Duration due = absl::InfiniteDuration();  // Time of the next start.
  };

  std::vector<Action> Stop();
  std::vector<Action> Fail(const std::string& child, int code, const std::string& why);
  void CountDeath(Child& child, int code);
  bool IsAlone(const Child& child) const;
  bool IsHopeless(const Child& child) const;
  bool AnyAlive() const;

  const Options options_;
  const Clock& clock_;
  Phase phase_ = Phase::kRunning;
  std::map<std::string, Child> children_;
  uint64_t committed_ = 0;
  absl::Duration deadline_ = absl::InfiniteDuration();
  int signal_ = 0;
  int exit_code_ = 0;
  std::string failure_;
  std::string failed_child_;
};

}  // namespace oxbow::cli
