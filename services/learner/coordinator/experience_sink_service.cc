#include "services/learner/coordinator/experience_sink_service.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "rpc/caller.h"
#include "rpc/convert.h"
#include "rpc/status.h"
#include "rpc/trace.h"

namespace oxbow::learner {
namespace {

using Stream = grpc::ServerReaderWriter<v1::InsertResponse, v1::InsertRequest>;

constexpr uint64_t kWindowBytes = 16 << 20;   // Credit of a stream, if the budget allows,
constexpr uint64_t kWindowShare = 16;         // but at most this fraction of the budget.
constexpr uint64_t kChunkBytesMax = 4 << 20;  // The largest chunk a worker may send.
constexpr absl::Duration kBudgetWait = absl::Milliseconds(100);

// The state of one worker's stream: granted and used credit, and the group being assembled.
class Inserting {
 public:
  Inserting(grpc::ServerContext& context, Stream& stream, ResultReceiver& receiver,
            ByteBudget& budget, const GroupRules& rules, LearnerMetrics& metrics)
      : context_(context),
        stream_(stream),
        receiver_(receiver),
        budget_(budget),
        rules_(rules),
        metrics_(metrics) {}

  grpc::Status Run() {
    v1::InsertRequest request;
    while (TopUp() && stream_.Read(&request)) {
      const bool goes_on = request.has_header() ? TakeHeader(std::move(*request.mutable_header()))
                                                : TakeChunk(request.chunk());
      if (!goes_on) return grpc::Status::OK;
      if (!refused_.ok()) return refused_;
      if (broken_) {
        return rpc::ToGrpc(
            absl::InvalidArgumentError("more bytes were sent than the sink had granted"));
      }
    }
    return grpc::Status::OK;
  }

 private:
  // Grants credit, always enough for one chunk, because otherwise the worker could not continue.
  // Waits for the budget until the worker disconnects.
  bool TopUp() {
    const uint64_t least = std::min(kChunkBytesMax, rules_.GroupBytesMax());
    const uint64_t window =
        std::max(least, std::min(kWindowBytes, budget_.bytes_max() / kWindowShare));
    while (credit_.bytes() < std::max(window / 2, least)) {
      const bool must_wait = credit_.bytes() < least;
      const uint64_t wanted = must_wait ? least - credit_.bytes() : window - credit_.bytes();
      ByteBudget::Hold more = budget_.Take(wanted, must_wait ? kBudgetWait : absl::ZeroDuration());
      if (more.bytes() == 0) {
        if (!must_wait) return true;
        if (context_.IsCancelled()) return false;
        continue;
      }
      v1::InsertResponse response;
      response.mutable_credit()->set_bytes(more.bytes());
      credit_.Merge(std::move(more));
      if (!stream_.Write(response)) return false;
    }
    metrics_.SinkHolds(budget_.used());
    return true;
  }

  bool TakeHeader(v1::Group header) {
    if (refused_ = rpc::MayBeWorker(&context_, header.worker_id()); !refused_.ok()) return true;
    group_ = std::move(header);
    held_ = {};
    chunks_.reset();
    if (const absl::Status status = CheckHeader(group_, rules_); !status.ok()) {
      return Refuse(status);
    }
    std::vector<v1::Tensor> tensors;
    for (v1::Trajectory& trajectory : *group_.mutable_trajectories()) {
      trajectory.mutable_latents()->clear_data();
      tensors.push_back(trajectory.latents());
    }
    auto chunks = rpc::ChunkAssembler::Start(tensors, rules_.GroupBytesMax());
    if (!chunks.ok()) return Refuse(chunks.status());
    chunks_ = *std::move(chunks);
    return chunks_->complete() ? Submit() : true;
  }

  bool TakeChunk(const v1::InsertRequest::Chunk& chunk) {
    const uint64_t bytes = chunk.data().size();
    if (bytes > credit_.bytes()) {
      broken_ = true;
      return true;
    }
    ByteBudget::Hold used = credit_.Split(bytes);
    if (!chunks_.has_value())
      return true;  // The rest of a refused group is dropped, and its bytes are given back.
    const absl::Status status = chunks_->Add(chunk.trajectory(), chunk.offset(), chunk.data());
    if (!status.ok()) return Refuse(status);
    held_.Merge(std::move(used));
    return chunks_->complete() ? Submit() : true;
  }

  bool Refuse(const absl::Status& status) {
    chunks_.reset();
    held_ = {};
    receiver_.Refuse(LeaseId(group_.lease_id()), group_.worker_id(), std::string(status.message()));
    return Acknowledge(v1::INSERT_OUTCOME_INVALID, std::string(status.message()), 0);
  }

  bool Submit() {
    std::vector<std::string> bytes = std::move(*chunks_).Take();
    chunks_.reset();
    for (int i = 0; i < group_.trajectories_size(); ++i) {
      group_.mutable_trajectories(i)->mutable_latents()->set_data(
          std::move(bytes[static_cast<size_t>(i)]));
    }
    const uint64_t size = held_.bytes();
    const v1::Group identity = Identity();
    std::string error;
    const v1::InsertOutcome outcome = receiver_.Submit(
        {.group = std::move(group_), .attempt = 0, .bytes = std::move(held_)}, error);
    group_ = identity;
    held_ = {};
    return Acknowledge(outcome, error, size);
  }

  v1::Group Identity() const {
    v1::Group identity;
    identity.set_group_id(group_.group_id());
    identity.set_lease_id(group_.lease_id());
    identity.set_worker_id(group_.worker_id());
    for (int i = 0; i < group_.trajectories_size(); ++i) identity.add_trajectories();
    return identity;
  }

  bool Acknowledge(v1::InsertOutcome outcome, const std::string& error, uint64_t bytes) {
    v1::InsertResponse response;
    v1::InsertResponse::Ack& ack = *response.mutable_ack();
    ack.set_group_id(group_.group_id());
    ack.set_lease_id(group_.lease_id());
    ack.set_outcome(outcome);
    ack.set_error(error);
    for (int i = 0; i < group_.trajectories_size(); ++i) ack.add_trajectories(outcome);
    static constexpr const char* kNames[] = {"",       "accepted", "duplicate",
                                             "fenced", "invalid",  "superseded"};
    metrics_.ResultReceived(kNames[outcome], bytes);
    if (outcome == v1::INSERT_OUTCOME_ACCEPTED || outcome == v1::INSERT_OUTCOME_DUPLICATE) {
      OXBOW_LOG(Debug) << "result taken" << Field("group", group_.group_id())
                       << Field("lease", group_.lease_id()) << Field("worker", group_.worker_id())
                       << Field("outcome", kNames[outcome]) << Field("bytes", bytes);
    }
    if (outcome == v1::INSERT_OUTCOME_FENCED || outcome == v1::INSERT_OUTCOME_SUPERSEDED) {
      OXBOW_LOG(Info) << "late result refused" << Field("group", group_.group_id())
                      << Field("lease", group_.lease_id()) << Field("worker", group_.worker_id())
                      << Field("outcome", kNames[outcome]);
    }
    if (outcome == v1::INSERT_OUTCOME_INVALID) {
      OXBOW_LOG(Warning) << "result refused" << Field("group", group_.group_id())
                         << Field("lease", group_.lease_id()) << Field("worker", group_.worker_id())
                         << Field("reason", error);
    }
    return stream_.Write(response);
  }

  grpc::ServerContext& context_;
  Stream& stream_;
  ResultReceiver& receiver_;
  ByteBudget& budget_;
  const GroupRules& rules_;
  LearnerMetrics& metrics_;
  ByteBudget::Hold credit_;  // Granted but unused.
  ByteBudget::Hold held_;    // Used by the group being assembled.
  v1::Group group_;
  std::optional<rpc::ChunkAssembler> chunks_;  // Empty: chunks belong to a refused group.
  bool broken_ = false;
  grpc::Status refused_;  // Not OK: the caller may not speak for the worker it names.
};

}  // namespace

ExperienceSinkService::ExperienceSinkService(ResultReceiver& receiver, ByteBudget& budget,
                                             GroupRules rules, LearnerMetrics& metrics)
    : receiver_(receiver), budget_(budget), rules_(std::move(rules)), metrics_(metrics) {}

grpc::Status ExperienceSinkService::Insert(grpc::ServerContext* context, Stream* stream) {
  const TraceScope scope(rpc::TraceOf(context));
  return Inserting(*context, *stream, receiver_, budget_, rules_, metrics_).Run();
}

}  // namespace oxbow::learner
