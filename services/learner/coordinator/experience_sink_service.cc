// SPDX-License-Identifier: Apache-2.0
#include "services/learner/coordinator/experience_sink_service.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/trace.h"
#include "rpc/call_checks.h"
#include "rpc/convert.h"
#include "rpc/status.h"

namespace oxbow::learner {
namespace {

using Stream = ExperienceSinkService::InsertStream;

constexpr int kInsertMethod = 0;                          // Its index in service ExperienceSink.
constexpr absl::Duration kSignOfLife = absl::Seconds(5);  // While a worker waits for credit.

v1::InsertResponse CreditOf(uint64_t bytes) {
  v1::InsertResponse response;
  response.mutable_credit()->set_bytes(bytes);
  return response;
}

// One worker's stream so far: the group being assembled, and the credit that it has left.
class Inserting {
 public:
  Inserting(ResultReceiver& receiver, const GroupRules& rules, LearnerMetrics& metrics)
      : receiver_(receiver), rules_(rules), metrics_(metrics) {}

  // The answer to a message, if it has one. kInvalidArgument if the worker breaks the protocol,
  // kUnavailable if it must ask again: then the stream ends.
  absl::StatusOr<std::optional<v1::InsertResponse>> Take(v1::InsertRequest& request) {
    if (request.has_header()) return TakeHeader(std::move(*request.mutable_header()));
    return TakeChunk(request.chunk());
  }

  // Latent bytes of the header just taken, for which there is no credit yet.
  uint64_t wanted() const {
    return chunks_.has_value() && credit_.bytes() == 0 && held_.bytes() == 0
               ? chunks_->bytes_total()
               : 0;
  }
  ByteBudget::Hold& credit() { return credit_; }

  // Latents that came with the header, which wait for their credit as chunks would.
  bool with_header() const { return !latents_.empty(); }
  absl::StatusOr<std::optional<v1::InsertResponse>> TakeWithHeader() {
    Answer answer = std::optional<v1::InsertResponse>();
    const std::vector<std::string> latents = std::exchange(latents_, {});
    for (size_t i = 0; i < latents.size() && chunks_.has_value(); ++i) {
      if (latents[i].empty()) continue;  // As no chunk comes for it.
      answer = TakeBytes(static_cast<uint32_t>(i), 0, latents[i]);
    }
    if (!chunks_.has_value()) return answer;
    return Refuse(absl::InvalidArgumentError("latents in a header that are not whole"));
  }

 private:
  using Answer = absl::StatusOr<std::optional<v1::InsertResponse>>;

  Answer TakeHeader(v1::Group header) {
    group_ = std::move(header);
    worker_ = group_.worker_id();
    samples_ = group_.trajectories_size();
    ack_.set_group_id(group_.group_id());
    ack_.set_lease_id(group_.lease_id());
    held_ = {};
    credit_ = {};
    chunks_.reset();
    latents_.clear();
    if (const absl::Status status = CheckHeader(group_, rules_); !status.ok()) {
      return Refuse(status);
    }
    std::vector<v1::Tensor> tensors;
    std::vector<std::string> latents;
    uint64_t bytes = 0;
    for (v1::Trajectory& trajectory : *group_.mutable_trajectories()) {
      latents.push_back(std::exchange(*trajectory.mutable_latents()->mutable_data(), {}));
      bytes += latents.back().size();
      tensors.push_back(trajectory.latents());
    }
    if (bytes > rpc::kHeaderLatentBytes) {
      return Refuse(absl::InvalidArgumentError(absl::StrCat(
          "latents in a header: ", bytes, " bytes, at most ", rpc::kHeaderLatentBytes)));
    }
    auto chunks = rpc::ChunkAssembler::Start(tensors, rules_.GroupBytesMax());
    if (!chunks.ok()) return Refuse(chunks.status());
    chunks_ = *std::move(chunks);
    if (chunks_->complete()) return Submit();
    if (bytes > 0) latents_ = std::move(latents);
    return std::nullopt;
  }

  Answer TakeChunk(const v1::InsertRequest::Chunk& chunk) {
    if (!chunks_.has_value()) return std::nullopt;  // The rest of a refused group is dropped.
    return TakeBytes(chunk.trajectory(), chunk.offset(), chunk.data());
  }

  Answer TakeBytes(uint32_t trajectory, uint64_t offset, const std::string& data) {
    if (data.size() > credit_.bytes()) {
      return absl::InvalidArgumentError("more bytes were sent than the sink had granted");
    }
    ByteBudget::Hold used = credit_.Split(data.size());
    const absl::Status status = chunks_->Add(trajectory, offset, data);
    if (!status.ok()) return Refuse(status);
    held_.Merge(std::move(used));
    if (chunks_->complete()) return Submit();
    return std::nullopt;
  }

  Answer Refuse(const absl::Status& status) {
    chunks_.reset();
    held_ = {};
    credit_ = {};
    receiver_.Refuse(LeaseId(ack_.lease_id()), worker_, std::string(status.message()));
    return Acknowledge(v1::INSERT_OUTCOME_INVALID, std::string(status.message()), 0);
  }

  Answer Submit() {
    std::vector<std::string> bytes = std::move(*chunks_).Take();
    chunks_.reset();
    for (int i = 0; i < group_.trajectories_size(); ++i) {
      group_.mutable_trajectories(i)->mutable_latents()->set_data(
          std::move(bytes[static_cast<size_t>(i)]));
    }
    const uint64_t size = held_.bytes();
    std::string error;
    const v1::InsertOutcome outcome = receiver_.Submit(
        {.group = std::move(group_), .attempt = 0, .bytes = std::move(held_)}, error);
    held_ = {};
    if (outcome == v1::INSERT_OUTCOME_UNSPECIFIED) {
      return absl::UnavailableError(absl::StrCat("not decided, send again: ", error));
    }
    return Acknowledge(outcome, error, size);
  }

  v1::InsertResponse Acknowledge(v1::InsertOutcome outcome, const std::string& error,
                                 uint64_t bytes) {
    v1::InsertResponse response;
    v1::InsertResponse::Ack& ack = *response.mutable_ack();
    ack = ack_;
    ack.set_outcome(outcome);
    ack.set_error(error);
    for (int i = 0; i < samples_; ++i) ack.add_trajectories(outcome);
    static constexpr const char* kNames[] = {"",       "accepted", "duplicate",
                                             "fenced", "invalid",  "superseded"};
    metrics_.ResultReceived(kNames[outcome], bytes);
    const bool invalid = outcome == v1::INSERT_OUTCOME_INVALID;
    const bool late =
        outcome == v1::INSERT_OUTCOME_FENCED || outcome == v1::INSERT_OUTCOME_SUPERSEDED;
    const LogLevel level = invalid ? LogLevel::kWarning : late ? LogLevel::kInfo : LogLevel::kDebug;
    const auto text = invalid ? "result refused" : late ? "late result refused" : "result taken";
    if (!LogEnabled(level)) return response;
    LogEvent line(level, __FILE__, __LINE__);
    line << text << Field("group", ack.group_id()) << Field("lease", ack.lease_id())
         << Field("worker", worker_)
         << (invalid ? Field("reason", error) : Field("outcome", kNames[outcome]));
    if (!invalid && !late) line << Field("bytes", bytes);
    return response;
  }

  ResultReceiver& receiver_;
  const GroupRules& rules_;
  LearnerMetrics& metrics_;
  ByteBudget::Hold credit_;  // Granted but unused.
  ByteBudget::Hold held_;    // Used by the group being assembled.
  v1::Group group_;
  std::string worker_;  // The group's, as are the two below.
  int samples_ = 0;
  v1::InsertResponse::Ack ack_;
  std::optional<rpc::ChunkAssembler> chunks_;  // Empty: chunks belong to a refused group.
  std::vector<std::string> latents_;           // That came with the header, by trajectory.
};

}  // namespace

ExperienceSinkService::ExperienceSinkService(ResultReceiver& receiver, ByteBudget& budget,
                                             GroupRules rules, LearnerMetrics& metrics,
                                             rpc::StreamRunner::Options streams)
    : receiver_(receiver),
      budget_(budget),
      rules_(std::move(rules)),
      metrics_(metrics),
      runner_(streams) {
  MarkMethodStreamed(kInsertMethod, nullptr);
  MarkMethodCallback(kInsertMethod,
                     rpc::StreamHandler<v1::InsertRequest, v1::InsertResponse>(
                         runner_, [this](InsertStream& stream) { return Take(stream); }));
}

// A group gets credit for all its bytes at once, in the order of arrival of the headers. So a
// stream without a header holds nothing, and groups that have begun to arrive can always finish.
rpc::Handler ExperienceSinkService::Take(InsertStream& stream) {
  Inserting inserting(receiver_, rules_, metrics_);
  v1::InsertRequest request;
  while (co_await stream.Read(request)) {
    if (request.has_header()) {
      const grpc::Status own = rpc::MayBeWorker(&stream.context(), request.header().worker_id());
      if (!own.ok()) co_return rpc::FromGrpc(own);
    }
    absl::StatusOr<std::optional<v1::InsertResponse>> answer;
    {
      const TraceScope scope(stream.trace());
      answer = inserting.Take(request);
    }
    if (!answer.ok()) co_return answer.status();
    if (answer->has_value()) stream.Send(**std::move(answer));
    const uint64_t wanted = inserting.wanted();
    if (wanted == 0) continue;
    {
      ByteBudget::Place place(budget_, wanted, [&stream] { stream.Wake(); });
      while (!place.Take(inserting.credit())) {
        co_await stream.Wait(kSignOfLife);
        if (stream.cancelled()) co_return absl::CancelledError("the worker is gone");
        if (place.Take(inserting.credit())) break;
        stream.Send(CreditOf(0));  // The worker sees that it is worth waiting.
      }
    }
    if (inserting.with_header()) {
      const TraceScope scope(stream.trace());
      answer = inserting.TakeWithHeader();
      if (!answer.ok()) co_return answer.status();
      stream.Send(**std::move(answer));
    } else {
      stream.Send(CreditOf(wanted));
    }
    metrics_.SinkHolds(budget_.used());
  }
  co_return absl::OkStatus();
}

}  // namespace oxbow::learner
