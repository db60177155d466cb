// SPDX-License-Identifier: Apache-2.0
#include "services/learner/ranks/rank_leader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "rpc/protocol_revision.h"
#include "services/learner/ranks/step_manifest.h"

namespace oxbow::learner {
namespace {

constexpr absl::Duration kSaveMax = absl::Hours(1);  // For a rank's piece of a checkpoint.
constexpr int kJoinMethod = 0;                       // Their indices in service LearnerRanks.
constexpr int kAcceptMethod = 1;

v1::RankCommand Alive() {
  v1::RankCommand alive;
  alive.mutable_alive();
  return alive;
}

}  // namespace

RankLeader::RankLeader(Options options, const Clock& clock, ResultReceiver& results,
                       std::function<void(const absl::Status&)> lost)
    : options_(std::move(options)),
      clock_(clock),
      results_(results),
      lost_(std::move(lost)),
      ticker_([this] {
        while (!ended_.WaitForNotificationWithTimeout(kAliveEvery)) {
          absl::MutexLock lock(&mutex_);
          SendToAll(Alive());
        }
      }),
      runner_({.threads = options_.threads, .idle_max = options_.timeout}) {
  MarkMethodStreamed(kJoinMethod, nullptr);
  MarkMethodCallback(kJoinMethod,
                     rpc::StreamHandler<v1::RankReport, v1::RankCommand>(
                         runner_, [this](JoinStream& stream) { return Join(stream); }));
  MarkMethodStreamed(kAcceptMethod, nullptr);
  MarkMethodCallback(kAcceptMethod,
                     rpc::StreamHandler<v1::InsertRequest, v1::InsertResponse>(
                         runner_, [this](AcceptStream& stream) { return Accept(stream); }));
}

RankLeader::~RankLeader() {
  ended_.Notify();
  ticker_.join();
}

absl::Status RankLeader::AwaitAll(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  const auto all = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !refused_.ok() || static_cast<int>(members_.size()) == options_.ranks - 1;
  };
  if (mutex_.AwaitWithTimeout(absl::Condition(&all), timeout)) return refused_;
  std::vector<std::string> missing;
  for (int rank = 1; rank < options_.ranks; ++rank) {
    if (!members_.contains(static_cast<uint32_t>(rank))) missing.push_back(absl::StrCat(rank));
  }
  return absl::DeadlineExceededError(
      absl::StrCat("learner ranks did not join: ", absl::StrJoin(missing, ", ")));
}

std::vector<std::string> RankLeader::sinks() const {
  absl::MutexLock lock(&mutex_);
  std::vector<std::string> sinks;
  for (const auto& [rank, member] : members_) sinks.push_back(member.place.sink_endpoint());
  return sinks;
}

void RankLeader::FillStatus(v1::StatusResponse& status) const {
  absl::MutexLock lock(&mutex_);
  for (const auto& [rank, member] : members_) {
    v1::RankStatus& told = *status.add_ranks();
    told.set_rank(rank);
    told.set_sink_endpoint(member.place.sink_endpoint());
    told.set_metrics_endpoint(member.place.metrics_endpoint());
    told.set_version(member.place.version());
    told.set_seconds_since_seen(absl::ToDoubleSeconds(clock_.Now() - member.seen));
  }
}

void RankLeader::Announce(LearnerStep step, const StepGroups& groups) {
  if (options_.ranks == 1) return;  // No rank would read the manifest.
  const std::vector<v1::RankCommand> manifest =
      InPieces(MakeManifest(step, groups, options_.ranks));
  absl::MutexLock lock(&mutex_);
  for (auto& [rank, member] : members_) {
    if (member.stream == nullptr) continue;
    for (v1::RankCommand& head : HeadsFor(static_cast<int>(rank), options_.ranks, groups)) {
      member.stream->Send(std::move(head));
    }
    for (const v1::RankCommand& piece : manifest) member.stream->Send(piece);
  }
}

void RankLeader::SendToAll(const v1::RankCommand& command) {
  for (auto& [rank, member] : members_) {
    if (member.stream != nullptr) member.stream->Send(command);
  }
}

void RankLeader::AnnounceSave(uint64_t committed_steps) {
  v1::RankCommand save;
  save.mutable_save()->set_committed_steps(committed_steps);
  absl::MutexLock lock(&mutex_);
  saving_ = committed_steps;
  saved_.clear();
  SendToAll(save);
}

absl::StatusOr<std::map<std::string, FileDigest>> RankLeader::AwaitSaved() {
  absl::MutexLock lock(&mutex_);
  const auto all = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return lost_one_ || static_cast<int>(saved_.size()) == options_.ranks - 1;
  };
  if (!mutex_.AwaitWithTimeout(absl::Condition(&all), kSaveMax) || lost_one_) {
    return absl::UnavailableError("a learner rank did not write its piece of the optimiser");
  }
  std::map<std::string, FileDigest> files;
  for (const auto& [rank, saved] : saved_) {
    if (!saved.error().empty()) {
      return absl::UnavailableError(absl::StrCat("learner rank ", rank, ": ", saved.error()));
    }
    files[saved.file()] = {.sha256 = saved.sha256(), .bytes = saved.bytes()};
  }
  return files;
}

void RankLeader::Stop(absl::Duration grace, const absl::Status& end) {
  v1::RankCommand stop;
  stop.mutable_stop()->set_exit_code(static_cast<uint32_t>(ExitCodeOf(end)));
  stop.mutable_stop()->set_reason(std::string(end.message()));
  absl::MutexLock lock(&mutex_);
  stopping_ = true;
  SendToAll(stop);
  const auto gone = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return std::all_of(members_.begin(), members_.end(),
                       [](const auto& member) { return member.second.stream == nullptr; });
  };
  mutex_.AwaitWithTimeout(absl::Condition(&gone), grace);
}

void RankLeader::Lose(uint32_t rank, const std::string& why) {
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_ || std::exchange(lost_one_, true)) return;
  }
  const absl::Status status = absl::UnavailableError(absl::StrCat("learner rank ", rank, " ", why));
  OXBOW_LOG(Error) << "the ranks of the learner end" << Field("reason", status.message());
  lost_(status);
}

absl::Status RankLeader::Admit(const v1::RankReport& report, JoinStream& stream) {
  const uint32_t rank = report.rank();
  if (!report.has_hello() || rank == 0 || rank >= static_cast<uint32_t>(options_.ranks)) {
    return absl::InvalidArgumentError(
        absl::StrCat("not a rank of this learner: ", rank, " of ", options_.ranks));
  }
  const std::string name = absl::StrCat("learner rank ", rank);
  absl::Status speaks = rpc::CheckRevision(name, report.hello().protocol(),
                                           report.hello().version(), "learner rank 0");
  absl::MutexLock lock(&mutex_);
  if (!speaks.ok()) return refused_ = speaks;  // Without it the ranks are not whole.
  if (const auto other = rpc::OtherBuildText(name, report.hello().version(), "learner rank 0");
      !other.empty()) {
    OXBOW_LOG(Warning) << other;
  }
  const auto [member, fresh] = members_.try_emplace(rank);
  if (!fresh) return absl::AlreadyExistsError(absl::StrCat("rank has joined: ", rank));
  member->second = {.place = report.hello(), .seen = clock_.Now(), .stream = &stream};
  return absl::OkStatus();
}

// Other threads send; this only listens. A rank that is silent for the timeout ends its stream.
rpc::Handler RankLeader::Join(JoinStream& stream) {
  v1::RankReport report;
  if (!co_await stream.Read(report)) co_return absl::OkStatus();
  const uint32_t rank = report.rank();
  if (const absl::Status status = Admit(report, stream); !status.ok()) co_return status;
  while (co_await stream.Read(report)) {
    if (report.has_drain()) {
      options_.drain(absl::StrCat(report.drain().reason(), " at learner rank ", rank));
    }
    absl::MutexLock lock(&mutex_);
    members_.at(rank).seen = clock_.Now();
    if (report.has_saved() && report.saved().committed_steps() == saving_) {
      saved_[rank] = report.saved();
    }
  }
  {
    absl::MutexLock lock(&mutex_);
    members_.at(rank).stream = nullptr;
  }
  Lose(rank, stream.expired()
                 ? absl::StrCat("is silent for ", absl::FormatDuration(options_.timeout))
                 : "hung up");
  co_return absl::OkStatus();
}

rpc::Handler RankLeader::Accept(AcceptStream& stream) {
  v1::InsertRequest request;
  if (!co_await stream.Read(request) || !request.has_header()) {
    co_return absl::InvalidArgumentError("a group begins with its header");
  }
  v1::Group group = std::move(*request.mutable_header());
  for (v1::Trajectory& trajectory : *group.mutable_trajectories()) {
    trajectory.mutable_latents()->clear_data();  // Only chunks bring bytes, which are counted.
  }
  uint64_t bytes = 0;
  while (co_await stream.Read(request)) {
    const v1::InsertRequest::Chunk& chunk = request.chunk();
    bytes += chunk.data().size();
    if (chunk.trajectory() >= static_cast<uint32_t>(group.trajectories_size()) ||
        bytes > options_.group_bytes_max) {
      co_return absl::InvalidArgumentError("chunk fits no trajectory of the group");
    }
    group.mutable_trajectories(static_cast<int>(chunk.trajectory()))
        ->mutable_latents()
        ->mutable_data()
        ->append(chunk.data());
  }
  // A stream that broke off ends like one that was closed.
  if (stream.cancelled()) co_return absl::CancelledError("the rank is gone");
  v1::InsertResponse decided = Decide(std::move(group));
  if (decided.ack().outcome() == v1::INSERT_OUTCOME_UNSPECIFIED) {
    co_return absl::UnavailableError(decided.ack().error());
  }
  stream.Send(std::move(decided));
  co_return absl::OkStatus();
}

v1::InsertResponse RankLeader::Decide(v1::Group group) {
  v1::InsertResponse response;
  v1::InsertResponse::Ack& ack = *response.mutable_ack();
  ack.set_group_id(group.group_id());
  ack.set_lease_id(group.lease_id());
  std::string error;
  ack.set_outcome(results_.Submit({.group = std::move(group), .attempt = 0, .bytes = {}}, error));
  ack.set_error(error);
  return response;
}

}  // namespace oxbow::learner
