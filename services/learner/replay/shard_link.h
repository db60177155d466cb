// SPDX-License-Identifier: Apache-2.0
// The learner's end of one shard of the replay buffer. A shard that fails never stops training:
// commits wait here in a bounded queue and are handed in, in order, once it answers again. Only a
// shard that says that it is another run's, or a later start's of this run, ends the run.
//
// The calls of one step have `step_budget` together, or a tenth of the time since the last budget
// where that is longer. A shard that uses it up is slow: it is left alone like one that is away,
// for a rest that doubles. So a hung disk costs a bounded share of the time.
//
// With `await_back` calls wait for a shard that is away: what a step draws must not depend on who
// died. Once a wait was in vain, nothing waits any more. Give such a link no budget.
//
// One thread at a time calls it; a thread of its own asks a lost shard whether it is back. client()
// may be used by others meanwhile: it holds no state but a gRPC stub.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/ids.h"
#include "services/buffer/replay_client.h"
#include "services/learner/record/learner_metrics.h"

namespace oxbow::learner {

// A committed step as the buffer sees it.
struct StepCommit {
  LearnerStep step;
  std::vector<v1::ReplayEntry> offers;  // To any table; in as many calls as they need.
  std::vector<v1::ReplayEntry> groups;  // Large ones: each a call of its own.
  std::vector<EntryId> used;
  std::vector<EntryId> evict;
  std::vector<buffer::Rescored> rescored;
  uint32_t failures_max = 0;  // Regenerations in a row that may fail; 0: any number.
};

class ShardLink {
 public:
  struct Options {
    std::string endpoint;
    uint32_t shards = 1;
    uint32_t shard = 0;
    absl::Duration timeout = absl::Seconds(10);
    absl::Duration probe_every = absl::Milliseconds(500);  // While it is away.
    absl::Duration await_back;  // At most, for a shard that is away; 0: not at all.
    absl::Duration step_budget = absl::InfiniteDuration();  // For its calls in one step.
    absl::Duration rest_least = absl::Seconds(10);      // For a slow shard; ten times that at most.
    uint64_t call_bytes_max = buffer::kOfferCallBytes;  // Offers beyond it go in another call.
    // Waiting for a shard that is away, commits and bytes of offers; older ones lose their offers.
    size_t commits_max = 64;
    uint64_t backlog_bytes_max = uint64_t{1} << 30;
    std::string run;        // Uid of the run; empty in tests that have none.
    std::string take_from;  // The run that loses its buffer to this one; empty: none.
    Epoch epoch;
    uint64_t start = 0;  // A random number of this start; 0: none.
  };

  ShardLink(Options options, LearnerMetrics& metrics);
  ~ShardLink();

  // Brings the shard to a checkpoint's content; where it has none of this name, and for an empty
  // name, to what was born in the first `step` steps. Drops the commits that wait: they belong to
  // another past. Done by the next Deliver that finds the shard.
  void Restore(const std::string& checkpoint, LearnerStep step);

  // Another step begins, with a budget of its own. There is no limit before the first.
  void BeginStep();

  // Waits on the step's account: `wait` is called with the time that is left.
  template <typename Wait>
  auto Spend(const char* call, const Wait& wait) {
    const absl::Duration began = Clock::Steady().Now();
    auto answer = wait(left_);
    Spent(call, Clock::Steady().Now() - began);
    return answer;
  }

  // Queues a commit, all of it of this shard, and drops the oldest offers over the limits.
  void Add(StepCommit commit);
  void LimitBacklog();

  // Hands in what waits; false if the shard is away or the run must end.
  bool Deliver();

  // Sorts the error of a call: a shard that refuses is there, any other is away. True if refused.
  bool Failed(const char* call, const absl::Status& status);

  // Makes a call, and again while the shard is away and comes back in time.
  template <typename Call>
  auto Ask(const char* name, const Call& call) {
    const absl::Duration give_up = Clock::Steady().Now() + options_.await_back;
    const auto once = [&] {
      return Spend(name, [&](absl::Duration left) {
        buffer::ReplayClient client = client_.Within(left);
        return call(client);
      });
    };
    auto answer = once();
    while (AwaitBack(name, StatusOf(answer), give_up)) answer = once();
    return answer;
  }

  // Keeps the content under a name.
  absl::Status Checkpoint(const std::string& name, uint32_t keep);

  bool attached() const;
  absl::Status ended() const;  // Why the run must end; OK: it need not.
  buffer::ReplayClient& client() { return client_; }

  // Waits until a lost shard answers; false after `timeout`.
  bool AwaitAttachedForTest(absl::Duration timeout) const;

 private:
  struct Pending {
    std::optional<std::string> restore;
    StepCommit commit;   // A restore has only its step: the steps that were committed.
    uint64_t bytes = 0;  // Size of the offers.
  };

  static const absl::Status& StatusOf(const absl::Status& answer) { return answer; }
  template <typename Value>
  static const absl::Status& StatusOf(const absl::StatusOr<Value>& answer) {
    return answer.status();
  }

  // Whether a call that ended like this found the shard away, and the shard answers by `give_up`.
  bool AwaitBack(const char* call, const absl::Status& status, absl::Duration give_up);

  void Spent(const char* call, absl::Duration time);
  bool budget_spent() const { return left_ < absl::Milliseconds(10); }  // Timers may be early.
  absl::Status HandCommit(buffer::ReplayClient& client, Pending& pending);
  absl::Status HandOffers(buffer::ReplayClient& client, Pending& pending);
  absl::Status HandRestore(buffer::ReplayClient& client, const std::string& checkpoint,
                           LearnerStep step);
  void Answered(LearnerStep step, const v1::ReplayEntry& offer,
                const v1::OfferResponse::Result& result);
  void Probe();

  const Options options_;
  LearnerMetrics& metrics_;
  buffer::ReplayClient client_;
  std::deque<Pending> pending_;
  uint64_t pending_bytes_ = 0;
  bool waited_in_vain_ = false;
  absl::Duration left_ = absl::InfiniteDuration();  // Rest of the step's budget.
  absl::Duration began_at_;                         // When the step with the budget began.
  absl::Duration rest_;

  mutable absl::Mutex mutex_;
  bool attached_ ABSL_GUARDED_BY(mutex_) = true;
  absl::Duration rests_until_ ABSL_GUARDED_BY(mutex_);  // Nobody asks it before.
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);
  std::thread prober_;
};

}  // namespace oxbow::learner
