// SPDX-License-Identifier: Apache-2.0
#include "services/rollout/experience_sender.h"

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "rpc/channel.h"
#include "rpc/convert.h"
#include "rpc/status.h"

namespace oxbow::rollout {
namespace {

using Stream = grpc::ClientReaderWriter<v1::InsertRequest, v1::InsertResponse>;

// The stream that sends one group: the granted credit, and the answer when it has arrived.
struct Conversation {
  Stream& stream;
  rpc::SilenceGuard::Watched& watched;
  uint64_t credit = 0;
  std::optional<v1::InsertResponse::Ack> ack;

  // Reads one message. False when the stream has ended.
  bool ReadOne() {
    v1::InsertResponse response;
    if (!stream.Read(&response)) return false;
    watched.SignOfLife();
    if (response.has_credit()) credit += response.credit().bytes();
    if (response.has_ack()) ack = response.ack();
    return true;
  }

  bool Write(const v1::InsertRequest& request, grpc::WriteOptions options = {}) {
    if (!stream.Write(request, options)) return false;
    watched.SignOfLife();
    return true;
  }

  // Waits for credit. False if the stream ended, or if the sink answered before it had all bytes.
  bool Spend(uint64_t bytes) {
    while (credit < bytes && !ack.has_value()) {
      if (!ReadOne()) return false;
    }
    if (ack.has_value()) return false;
    credit -= bytes;
    return true;
  }
};

void SendAll(const ExperienceSender::WireGroup& wire, Conversation& conversation) {
  // Without chunks the header is all: it, and the call's begin and end, are one packet.
  grpc::WriteOptions options;
  if (wire.latents.empty()) options.set_last_message();
  if (!conversation.Write(wire.header, options)) return;
  for (size_t i = 0; i < wire.latents.size(); ++i) {
    const bool sent = rpc::ForEachChunk(
        wire.latents[i], rpc::kChunkBytes, [&](uint64_t offset, std::string_view piece) {
          if (!conversation.Spend(piece.size())) return false;
          v1::InsertRequest request;
          request.mutable_chunk()->set_trajectory(static_cast<uint32_t>(i));
          request.mutable_chunk()->set_offset(offset);
          request.mutable_chunk()->set_data(std::string(piece));
          return conversation.Write(request);
        });
    if (!sent) return;
  }
}

ExperienceSender::WireGroup OnTheWire(v1::Group group) {
  ExperienceSender::WireGroup wire;
  uint64_t bytes = 0;
  for (const v1::Trajectory& trajectory : group.trajectories()) {
    bytes += trajectory.latents().data().size();
  }
  if (bytes <= rpc::kHeaderLatentBytes) {
    *wire.header.mutable_header() = std::move(group);
    return wire;
  }
  for (v1::Trajectory& trajectory : *group.mutable_trajectories()) {
    wire.latents.push_back(std::move(*trajectory.mutable_latents()->mutable_data()));
    if (wire.latents.back().empty()) {
      trajectory.clear_latents();
    } else {
      trajectory.mutable_latents()->clear_data();
    }
  }
  *wire.header.mutable_header() = std::move(group);
  return wire;
}

// The last limit of a stream that always moves.
constexpr absl::Duration kSendAtMost = absl::Hours(1);

}  // namespace

ExperienceSender::ExperienceSender(const std::string& endpoint, absl::Duration silence_max,
                                   rpc::RetryPolicy retry)
    : endpoint_(endpoint),
      silence_max_(silence_max),
      retry_(retry),
      stub_(v1::ExperienceSink::NewStub(rpc::Connect(endpoint))) {}

absl::StatusOr<v1::InsertResponse::Ack> ExperienceSender::Send(
    v1::Group group, const std::function<bool(absl::Duration)>& pause) {
  const WireGroup wire = OnTheWire(std::move(group));
  const v1::Group& header = wire.header.header();
  absl::StatusOr<v1::InsertResponse::Ack> ack;
  const auto once = [&] {
    ack = SendOnce(wire);
    return ack.status();
  };
  const auto told_pause = [&](absl::Duration wait) {
    OXBOW_LOG(Info) << "group not taken yet, sending again" << Field("group", header.group_id())
                    << Field("lease", header.lease_id()) << Field("sink", endpoint_)
                    << Field("in", absl::FormatDuration(wait)) << Field("status", ack.status());
    return pause(wait);
  };
  const absl::Status status = rpc::RetryUntilAnswered(retry_, once, told_pause);
  if (status.ok()) return ack;
  return Annotate(status, absl::StrCat("send group ", header.group_id(), " to ", endpoint_));
}

absl::StatusOr<v1::InsertResponse::Ack> ExperienceSender::SendOnce(const WireGroup& wire) {
  const std::unique_ptr<grpc::ClientContext> context = rpc::ContextWithDeadline(kSendAtMost);
  rpc::SilenceGuard::Watched watched(guard_, *context, silence_max_);
  context->set_initial_metadata_corked(true);
  const std::unique_ptr<Stream> stream = stub_->Insert(context.get());
  Conversation conversation{*stream, watched, 0, std::nullopt};
  SendAll(wire, conversation);
  while (!conversation.ack.has_value() && conversation.ReadOne()) {
  }
  if (!wire.latents.empty()) stream->WritesDone();
  if (conversation.ack.has_value()) {
    context->TryCancel();  // The answer is known; the stream is no longer needed.
    stream->Finish();
    return *conversation.ack;
  }
  const absl::Status status = watched.Ended(stream->Finish());
  if (!status.ok()) return status;
  return absl::UnavailableError("the sink closed the stream without an answer");
}

}  // namespace oxbow::rollout
