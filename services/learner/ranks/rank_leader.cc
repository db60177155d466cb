#include "services/learner/ranks/rank_leader.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "rpc/convert.h"
#include "rpc/status.h"
#include "services/learner/ranks/step_manifest.h"

namespace oxbow::learner {
namespace {

constexpr absl::Duration kAliveEvery = absl::Seconds(1);

}  // namespace

RankLeader::RankLeader(Options options, const Clock& clock, ResultReceiver& results,
                       std::function<void(const absl::Status&)> lost)
    : options_(options), clock_(clock), results_(results), lost_(std::move(lost)) {}

absl::Status RankLeader::AwaitAll(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  const auto all = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return static_cast<int>(members_.size()) == options_.ranks - 1;
  };
  if (mutex_.AwaitWithTimeout(absl::Condition(&all), timeout)) return absl::OkStatus();
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
  for (const auto& [rank, member] : members_) sinks.push_back(member->place.sink_endpoint());
  return sinks;
}

void RankLeader::FillStatus(v1::StatusResponse& status) const {
  absl::MutexLock lock(&mutex_);
  for (const auto& [rank, member] : members_) {
    v1::RankStatus& told = *status.add_ranks();
    told.set_rank(rank);
    told.set_sink_endpoint(member->place.sink_endpoint());
    told.set_metrics_endpoint(member->place.metrics_endpoint());
    told.set_seconds_since_seen(absl::ToDoubleSeconds(clock_.Now() - member->seen));
  }
}

void RankLeader::Announce(LearnerStep step, const std::vector<ReceivedGroup>& received,
                          const std::vector<PlannedGroup>& planned) {
  if (options_.ranks == 1) return;  // No rank would read the manifest.
  v1::RankCommand command;
  *command.mutable_step() = MakeManifest(step, received, planned);
  absl::MutexLock lock(&mutex_);
  for (auto& [rank, member] : members_) {
    for (v1::RankCommand& head : HeadsFor(static_cast<int>(rank), options_.ranks, planned)) {
      member->commands.Push(std::move(head));
    }
    member->commands.Push(command);
  }
}

void RankLeader::AnnounceSave() {
  v1::RankCommand save;
  save.mutable_save();
  absl::MutexLock lock(&mutex_);
  for (auto& [rank, member] : members_) member->commands.Push(save);
}

void RankLeader::Stop(absl::Duration grace) {
  v1::RankCommand stop;
  stop.mutable_stop();
  absl::MutexLock lock(&mutex_);
  stopping_ = true;
  for (auto& [rank, member] : members_) member->commands.Push(stop, absl::ZeroDuration());
  const auto gone = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return std::all_of(members_.begin(), members_.end(),
                       [](const auto& member) { return member.second->left; });
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

bool RankLeader::Silent(const Member& member) const {
  absl::MutexLock lock(&mutex_);
  return clock_.Now() - member.seen > options_.timeout;
}

void RankLeader::Write(uint32_t rank, Member& member,
                       grpc::ServerReaderWriter<v1::RankCommand, v1::RankReport>& stream) {
  while (true) {
    std::optional<v1::RankCommand> command = member.commands.Pop(kAliveEvery);
    {
      absl::MutexLock lock(&mutex_);
      if (member.left) return;
    }
    if (Silent(member)) {
      return Lose(rank, absl::StrCat("is silent for ", absl::FormatDuration(options_.timeout)));
    }
    const bool stop = command.has_value() && command->has_stop();
    if (!command.has_value()) command.emplace().mutable_alive();
    if (!stream.Write(*command) || stop) return;
  }
}

grpc::Status RankLeader::Join(grpc::ServerContext* context,
                              grpc::ServerReaderWriter<v1::RankCommand, v1::RankReport>* stream) {
  v1::RankReport report;
  if (!stream->Read(&report)) return grpc::Status::OK;
  const uint32_t rank = report.rank();
  if (!report.has_hello() || rank == 0 || static_cast<int>(rank) >= options_.ranks) {
    return rpc::ToGrpc(absl::InvalidArgumentError(
        absl::StrCat("not a rank of this learner: ", rank, " of ", options_.ranks)));
  }
  Member* member = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    auto& slot = members_[rank];
    if (slot != nullptr) {
      return rpc::ToGrpc(absl::AlreadyExistsError(absl::StrCat("rank has joined: ", rank)));
    }
    slot = std::make_unique<Member>();
    slot->place = report.hello();
    slot->seen = clock_.Now();
    member = slot.get();
  }
  // A stream has one reader and one writer; this thread writes.
  std::thread reader([&] {
    while (stream->Read(&report)) {
      absl::MutexLock lock(&mutex_);
      member->seen = clock_.Now();
    }
    {
      absl::MutexLock lock(&mutex_);
      member->left = true;
    }
    member->commands.Drain();
    Lose(rank, "hung up");
  });
  Write(rank, *member, *stream);
  {
    absl::MutexLock lock(&mutex_);
    const absl::Duration grace = stopping_ ? options_.timeout : absl::ZeroDuration();
    mutex_.AwaitWithTimeout(absl::Condition(&member->left), grace);
    if (!member->left) context->TryCancel();
  }
  reader.join();
  return grpc::Status::OK;
}

grpc::Status RankLeader::Accept(grpc::ServerContext*, grpc::ServerReader<v1::InsertRequest>* reader,
                                v1::InsertResponse* response) {
  v1::InsertRequest request;
  if (!reader->Read(&request) || !request.has_header()) {
    return rpc::ToGrpc(absl::InvalidArgumentError("a group begins with its header"));
  }
  ReceivedGroup received{.group = std::move(*request.mutable_header()), .attempt = 0, .bytes = {}};
  uint64_t bytes = 0;
  while (reader->Read(&request)) {
    const v1::InsertRequest::Chunk& chunk = request.chunk();
    bytes += chunk.data().size();
    if (chunk.trajectory() >= static_cast<uint32_t>(received.group.trajectories_size()) ||
        bytes > options_.group_bytes_max) {
      return rpc::ToGrpc(absl::InvalidArgumentError("chunk fits no trajectory of the group"));
    }
    received.group.mutable_trajectories(static_cast<int>(chunk.trajectory()))
        ->mutable_latents()
        ->mutable_data()
        ->append(chunk.data());
  }
  v1::InsertResponse::Ack& ack = *response->mutable_ack();
  ack.set_group_id(received.group.group_id());
  ack.set_lease_id(received.group.lease_id());
  std::string error;
  ack.set_outcome(results_.Submit(std::move(received), error));
  ack.set_error(error);
  return grpc::Status::OK;
}

}  // namespace oxbow::learner
