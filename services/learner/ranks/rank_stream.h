// SPDX-License-Identifier: Apache-2.0
// The side of LearnerRanks of a rank above 0: its stream to rank 0, and the groups that its sink
// has taken.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "base/bounded_queue.h"
#include "base/clock.h"
#include "oxbow/v1/learner_ranks.grpc.pb.h"
#include "services/learner/coordinator/group_assembler.h"
#include "services/learner/coordinator/group_check.h"
#include "services/learner/ranks/step_manifest.h"

namespace oxbow::learner {

class RankStream {
 public:
  struct Options {
    std::string leader;  // host:port of rank 0.
    int rank = 0;
    v1::RankReport::Hello place;                 // Where this rank serves.
    absl::Duration timeout = absl::Seconds(60);  // The longest silence.
  };
  // Joins at once. `lost` is called once, from some thread, when rank 0 is gone before `stop`.
  RankStream(Options options, const Clock& clock, std::function<void(const absl::Status&)> lost);
  ~RankStream();

  // Waits for the next command that is not `alive`. kUnavailable once rank 0 is gone.
  absl::StatusOr<v1::RankCommand> Next();

  // Asks rank 0 to end the run after the current step. From any thread.
  void AskToDrain(const std::string& reason);

  // Tells rank 0 what became of a Save. From any thread.
  void Saved(const v1::RankReport::Saved& saved);

  // Asks rank 0 whether a group counts, until it answers: its answer to the same lease stays the
  // same. `group` has the latent bytes that rank 0 is to keep. An error when the run is over or
  // rank 0 is gone.
  absl::StatusOr<v1::InsertResponse::Ack> Accept(const v1::Group& group);

 private:
  absl::StatusOr<v1::InsertResponse::Ack> AskOnce(const v1::Group& group);
  v1::RankReport Report() const;
  bool Write(const v1::RankReport& report);
  void ReadLoop();
  void AliveLoop();
  void Lose(const absl::Status& status);

  const Options options_;
  const Clock& clock_;
  const std::function<void(const absl::Status&)> lost_;
  const std::unique_ptr<v1::LearnerRanks::Stub> stub_;
  const std::unique_ptr<grpc::ClientContext> context_;
  const std::unique_ptr<grpc::ClientReaderWriter<v1::RankReport, v1::RankCommand>> stream_;
  BoundedQueue<v1::RankCommand> commands_{4096};
  absl::Notification closing_;

  absl::Mutex write_mutex_;  // Held while a report is written.
  absl::Mutex mutex_;
  absl::Duration seen_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;

  std::thread reader_;
  std::thread ticker_;
};

// The groups whose latents a rank above 0 holds until rank 0's manifest names them.
//
// A group is kept before rank 0 is asked whether it counts, because the manifest that names it may
// arrive before the answer. Thread-safe.
class HeldGroups final : public ResultReceiver {
 public:
  using Ask = std::function<absl::StatusOr<v1::InsertResponse::Ack>(const v1::Group& group)>;

  // `ask` tells rank 0 about a group and returns its answer. `kept`: the latents that rank 0 is to
  // have of it, for the replay buffer.
  using Keep = std::function<KeptLatents(const v1::Group& group)>;
  HeldGroups(GroupRules rules, Keep kept, Ask ask);

  v1::InsertOutcome Submit(ReceivedGroup group, std::string& error) override;
  void Refuse(LeaseId lease, const std::string& worker, const std::string& reason) override;

  // The group of a lease that the manifest names. kInternal if it is not here.
  absl::StatusOr<ReceivedGroup> Take(LeaseId lease);

  // Drops the groups of steps before `step`.
  void Forget(LearnerStep step);

 private:
  const GroupRules rules_;
  const Keep kept_;
  const Ask ask_;
  absl::Mutex mutex_;
  std::map<uint64_t, ReceivedGroup> groups_ ABSL_GUARDED_BY(mutex_);  // By lease.
};

}  // namespace oxbow::learner
