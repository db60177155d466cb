// SPDX-License-Identifier: Apache-2.0
#include "services/learner/ranks/rank_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/build_version.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "rpc/channel.h"
#include "rpc/convert.h"
#include "rpc/protocol_revision.h"
#include "rpc/retry.h"
#include "rpc/status.h"
#include "services/learner/ranks/step_manifest.h"

namespace oxbow::learner {
namespace {

constexpr absl::Duration kLineDeadline = absl::Hours(24 * 365);  // Outlives any run.

}  // namespace

RankStream::RankStream(Options options, const Clock& clock,
                       std::function<void(const absl::Status&)> lost)
    : options_(std::move(options)),
      clock_(clock),
      lost_(std::move(lost)),
      stub_(v1::LearnerRanks::NewStub(rpc::Connect(options_.leader))),
      context_(rpc::ContextWithDeadline(kLineDeadline)),
      stream_(stub_->Join(context_.get())),
      seen_(clock.Now()) {
  v1::RankReport hello = Report();
  *hello.mutable_hello() = options_.place;
  hello.mutable_hello()->set_version(BuildVersion());
  hello.mutable_hello()->set_protocol(kProtocolRevision);
  stream_->Write(hello);
  reader_ = std::thread([this] { ReadLoop(); });
  ticker_ = std::thread([this] { AliveLoop(); });
}

RankStream::~RankStream() {
  closing_.Notify();
  ticker_.join();
  context_->TryCancel();  // Changes nothing after `stop`.
  reader_.join();
}

v1::RankReport RankStream::Report() const {
  v1::RankReport report;
  report.set_rank(static_cast<uint32_t>(options_.rank));
  return report;
}

bool RankStream::Write(const v1::RankReport& report) {
  absl::MutexLock lock(&write_mutex_);
  return stream_->Write(report);
}

void RankStream::AskToDrain(const std::string& reason) {
  v1::RankReport report = Report();
  report.mutable_drain()->set_reason(reason);
  Write(report);  // If rank 0 is gone, the reader says so.
}

void RankStream::Saved(const v1::RankReport::Saved& saved) {
  v1::RankReport report = Report();
  *report.mutable_saved() = saved;
  Write(report);  // If rank 0 is gone, the reader says so.
}

void RankStream::ReadLoop() {
  v1::RankCommand command;
  v1::StepManifest manifest;  // Comes in pieces.
  while (stream_->Read(&command)) {
    {
      absl::MutexLock lock(&mutex_);
      seen_ = clock_.Now();
      if (command.has_stop()) stopped_ = true;
    }
    if (command.has_alive()) continue;
    if (command.has_step()) {
      if (!AddPiece(std::move(*command.mutable_step()), manifest)) continue;
      *command.mutable_step() = std::exchange(manifest, {});
    }
    commands_.Push(std::move(command));
  }
  const absl::Status end = rpc::FromGrpc(stream_->Finish());
  if (absl::IsInvalidArgument(end)) return Lose(end);  // It refuses this rank as it is.
  Lose(absl::UnavailableError(
      absl::StrCat("learner rank 0 hung up", end.ok() ? "" : ": ", std::string(end.message()))));
}

void RankStream::AliveLoop() {
  v1::RankReport alive = Report();
  alive.mutable_alive();
  while (!closing_.WaitForNotificationWithTimeout(kAliveEvery)) {
    bool silent = false;
    {
      absl::MutexLock lock(&mutex_);
      silent = clock_.Now() - seen_ > options_.timeout;
    }
    if (!silent && Write(alive)) continue;
    if (silent) {
      Lose(absl::UnavailableError(
          absl::StrCat("learner rank 0 is silent for ", absl::FormatDuration(options_.timeout))));
      context_->TryCancel();
    }
    return;
  }
  stream_->WritesDone();
}

void RankStream::Lose(const absl::Status& status) {
  {
    absl::MutexLock lock(&mutex_);
    if (stopped_ || closing_.HasBeenNotified() || !status_.ok()) return;
    status_ = status;
  }
  commands_.Close();
  lost_(status);
}

absl::StatusOr<v1::RankCommand> RankStream::Next() {
  std::optional<v1::RankCommand> command = commands_.Pop();
  if (command.has_value()) return *std::move(command);
  absl::MutexLock lock(&mutex_);
  return status_;
}

absl::StatusOr<v1::InsertResponse::Ack> RankStream::Accept(const v1::Group& group) {
  absl::StatusOr<v1::InsertResponse::Ack> ack;
  const auto ask = [&] {
    ack = AskOnce(group);
    return ack.status();
  };
  const auto pause = [&](absl::Duration wait) {
    OXBOW_LOG(Warning) << "rank 0 has not answered, asking again"
                       << Field("lease", group.lease_id()) << Field("status", ack.status());
    absl::MutexLock lock(&mutex_);
    const auto over = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return stopped_ || !status_.ok();
    };
    return !mutex_.AwaitWithTimeout(absl::Condition(&over), wait);
  };
  OXBOW_RETURN_IF_ERROR(rpc::RetryUntilAnswered({}, ask, pause));
  return ack;
}

absl::StatusOr<v1::InsertResponse::Ack> RankStream::AskOnce(const v1::Group& group) {
  v1::InsertResponse response;
  const auto context = rpc::ContextWithDeadline(options_.timeout);
  const auto writer = stub_->Accept(context.get(), &response);
  v1::InsertRequest header;
  *header.mutable_header() = group;
  for (v1::Trajectory& trajectory : *header.mutable_header()->mutable_trajectories()) {
    if (trajectory.has_latents()) trajectory.mutable_latents()->clear_data();
  }
  bool open = writer->Write(header);
  for (int i = 0; open && i < group.trajectories_size(); ++i) {
    open = rpc::ForEachChunk(group.trajectories(i).latents().data(), rpc::kChunkBytes,
                             [&](uint64_t offset, std::string_view piece) {
                               v1::InsertRequest request;
                               request.mutable_chunk()->set_trajectory(static_cast<uint32_t>(i));
                               request.mutable_chunk()->set_offset(offset);
                               request.mutable_chunk()->set_data(std::string(piece));
                               return writer->Write(request);
                             });
  }
  writer->WritesDone();
  const absl::Status status = rpc::FromGrpc(writer->Finish());
  // By a rank 0 that shuts down: nobody knows what it had decided.
  if (absl::IsCancelled(status)) return absl::UnavailableError(status.message());
  if (!status.ok()) return status;
  return response.ack();
}

HeldGroups::HeldGroups(GroupRules rules, Keep kept, Ask ask)
    : rules_(std::move(rules)), kept_(std::move(kept)), ask_(std::move(ask)) {}

v1::InsertOutcome HeldGroups::Submit(ReceivedGroup received, std::string& error) {
  if (const absl::Status status = CheckFinite(received.group, rules_); !status.ok()) {
    error = std::string(status.message());
    Refuse(LeaseId(received.group.lease_id()), received.group.worker_id(), error);
    return v1::INSERT_OUTCOME_INVALID;
  }
  const uint64_t lease = received.group.lease_id();
  const v1::Group told = WithoutLatents(received.group, kept_(received.group));
  bool kept;  // False if a result of this lease is here already: it must not go with this one.
  {
    absl::MutexLock lock(&mutex_);
    kept = groups_.try_emplace(lease, std::move(received)).second;
  }
  const absl::StatusOr<v1::InsertResponse::Ack> ack = ask_(told);
  if (!ack.ok() && rpc::FailureOf(ack.status()) != rpc::Failure::kAnswer) {
    // Rank 0 is gone, and nobody knows what it decided: the group stays here in case it counts.
    error = absl::StrCat("rank 0 did not answer: ", std::string(ack.status().message()));
    return v1::INSERT_OUTCOME_UNSPECIFIED;
  }
  error = ack.ok() ? ack->error() : std::string(ack.status().message());
  const v1::InsertOutcome outcome = ack.ok() ? ack->outcome() : v1::INSERT_OUTCOME_INVALID;
  if (outcome == v1::INSERT_OUTCOME_ACCEPTED || outcome == v1::INSERT_OUTCOME_DUPLICATE) {
    return outcome;
  }
  absl::MutexLock lock(&mutex_);
  if (kept) groups_.erase(lease);
  return outcome;
}

// Rank 0 learns of it when the worker gives the lease back, or when the lease expires.
void HeldGroups::Refuse(LeaseId lease, const std::string& worker, const std::string& reason) {
  OXBOW_LOG(Warning) << "result refused" << Field("lease", lease) << Field("worker", worker)
                     << Field("reason", reason);
}

absl::StatusOr<ReceivedGroup> HeldGroups::Take(LeaseId lease) {
  absl::MutexLock lock(&mutex_);
  const auto found = groups_.find(lease.value);
  if (found == groups_.end()) {
    return absl::InternalError(
        absl::StrCat("the manifest names a group this rank does not hold: lease ", lease.value));
  }
  ReceivedGroup group = std::move(found->second);
  groups_.erase(found);
  return group;
}

void HeldGroups::Forget(LearnerStep step) {
  absl::MutexLock lock(&mutex_);
  std::erase_if(groups_,
                [&](const auto& item) { return item.second.group.learner_step() < step.value; });
}

}  // namespace oxbow::learner
