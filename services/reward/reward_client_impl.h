// SPDX-License-Identifier: Apache-2.0
// The inside of RewardClient, and its connections.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "oxbow/v1/reward.grpc.pb.h"
#include "rpc/channel.h"
#include "services/reward/reward_client.h"
#include "services/reward/reward_directory.h"
#include "services/reward/score_call.h"

namespace oxbow::reward {

// The connection to one reward server, which may be one that somebody else wrote: it bears as many
// pings as gRPC's servers do by default, unless it is the run's own. Thread-safe.
class ServerLine {
 public:
  ServerLine(std::string endpoint, rpc::Pings pings);

  // For one call.
  std::shared_ptr<v1::Reward::Stub> stub() const;

  // Hears how a call ended. After "too many pings" later calls take a new connection, on which
  // pings are rare.
  void Ended(const absl::Status& status);

  rpc::Pings pings() const;

 private:
  const std::string endpoint_;
  mutable absl::Mutex mutex_;
  rpc::Pings pings_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<v1::Reward::Stub> stub_ ABSL_GUARDED_BY(mutex_);  // Shared with its calls.
};

struct RewardClient::Impl {
  using Absences = std::map<std::string, absl::Status>;  // By reward.
  using Turn = RewardDirectory::Turn;

  explicit Impl(Options o)
      : options(std::move(o)),
        directory(options.endpoints, options.breaker, options.identities),
        random(std::random_device()()) {}

  bool IsObserved(const std::string& reward) const;
  bool MayBeMissing(const std::vector<std::string>& rewards) const;
  absl::Status Describe();
  bool Rest(absl::Duration duration);
  absl::Status DescribeOne(size_t server);
  std::unique_ptr<ScoreCall> NewCall(const std::vector<Frames>& media, const Patience& patience)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void RunBatches(ScoreCall& call, const std::vector<ScoreBatch>& batches);
  void Score(ScoreCall& call, const ScoreBatch& batch);
  void Ask(ScoreCall& call, const ScoreBatch& batch);
  absl::Status Take(const Turn& turn, ScoreCall& call, const ScoreBatch& open);
  void GiveUp(ScoreCall& call, const ScoreBatch& open, const absl::Status& why);
  absl::StatusOr<Turn> Next(ScoreCall& call, const std::vector<std::string>& wanted,
                            absl::Duration end);
  Absences TryBatch(size_t server, ScoreCall& call, const ScoreBatch& batch,
                    absl::Duration timeout);
  absl::Status Exchange(size_t server, ScoreCall& call, const ScoreBatch& batch,
                        absl::Duration timeout, Absences& absences);
  void NoteOutcome(size_t server, const std::string& reward, const absl::Status& status,
                   absl::Duration pause = absl::ZeroDuration());
  absl::StatusOr<Scores> ResultOf(const Outcomes& outcomes) const;
  void LogFailures(const std::vector<Outcomes>& outcomes) const;

  // The context of one gRPC call that Cancel ends.
  class Cancellable {
   public:
    Cancellable(Impl& impl, absl::Duration timeout)
        : impl_(impl), context_(rpc::ContextWithDeadline(timeout)) {
      absl::MutexLock lock(&impl_.mutex);
      impl_.running.insert(context_.get());
      if (impl_.cancelled) context_->TryCancel();
    }
    ~Cancellable() {
      absl::MutexLock lock(&impl_.mutex);
      impl_.running.erase(context_.get());
    }
    grpc::ClientContext* get() const { return context_.get(); }

   private:
    Impl& impl_;
    const std::unique_ptr<grpc::ClientContext> context_;
  };

  // Marks, while it lives, that a call waits.
  class Waiting {
   public:
    explicit Waiting(Impl& impl) : impl_(impl) {}
    ~Waiting();
    void Begin(const absl::Status& why);

   private:
    Impl& impl_;
    bool waits_ = false;
  };

  Options options;                                 // Describe fills in `rewards`.
  std::vector<std::unique_ptr<ServerLine>> lines;  // By server.

  mutable absl::Mutex mutex;
  absl::CondVar changed;  // A breaker heard an outcome, or calls are to end.
  RewardDirectory directory ABSL_GUARDED_BY(mutex);
  std::minstd_rand random ABSL_GUARDED_BY(mutex);  // For jitter and groups.
  bool impatient ABSL_GUARDED_BY(mutex) = false;
  bool cancelled ABSL_GUARDED_BY(mutex) = false;
  std::set<grpc::ClientContext*> running ABSL_GUARDED_BY(mutex);
  int waiting_calls ABSL_GUARDED_BY(mutex) = 0;
  std::string waiting_for ABSL_GUARDED_BY(mutex);
};

}  // namespace oxbow::reward
