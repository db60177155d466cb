#include "services/rollout/experience_sender.h"

#include <optional>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
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
  uint64_t credit = 0;
  std::optional<v1::InsertResponse::Ack> ack;

  // Reads one message. False when the stream has ended.
  bool ReadOne() {
    v1::InsertResponse response;
    if (!stream.Read(&response)) return false;
    if (response.has_credit()) credit += response.credit().bytes();
    if (response.has_ack()) ack = response.ack();
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

void SendAll(const v1::Group& group, Conversation& conversation) {
  v1::InsertRequest header;
  *header.mutable_header() = group;
  std::vector<std::string> latents;
  for (v1::Trajectory& trajectory : *header.mutable_header()->mutable_trajectories()) {
    latents.push_back(std::move(*trajectory.mutable_latents()->mutable_data()));
    if (latents.back().empty())
      trajectory.clear_latents();
    else
      trajectory.mutable_latents()->clear_data();
  }
  if (!conversation.stream.Write(header)) return;
  for (size_t i = 0; i < latents.size(); ++i) {
    const bool sent = rpc::ForEachChunk(
        latents[i], rpc::kChunkBytes, [&](uint64_t offset, std::string_view piece) {
          if (!conversation.Spend(piece.size())) return false;
          v1::InsertRequest request;
          request.mutable_chunk()->set_trajectory(static_cast<uint32_t>(i));
          request.mutable_chunk()->set_offset(offset);
          request.mutable_chunk()->set_data(std::string(piece));
          return conversation.stream.Write(request);
        });
    if (!sent) return;
  }
}

}  // namespace

ExperienceSender::ExperienceSender(const std::string& endpoint, absl::Duration timeout)
    : endpoint_(endpoint),
      timeout_(timeout),
      stub_(v1::ExperienceSink::NewStub(rpc::Connect(endpoint))) {}

absl::StatusOr<v1::InsertResponse::Ack> ExperienceSender::Send(const v1::Group& group) const {
  absl::StatusOr<v1::InsertResponse::Ack> ack;
  const absl::Status status = rpc::Retry({}, [&] {
    ack = SendOnce(group);
    return ack.status();
  });
  if (!status.ok())
    return Annotate(status, absl::StrCat("send group ", group.group_id(), " to ", endpoint_));
  return ack;
}

absl::StatusOr<v1::InsertResponse::Ack> ExperienceSender::SendOnce(const v1::Group& group) const {
  const std::unique_ptr<grpc::ClientContext> context = rpc::ContextWithDeadline(timeout_);
  const std::unique_ptr<Stream> stream = stub_->Insert(context.get());
  Conversation conversation{*stream, 0, std::nullopt};
  SendAll(group, conversation);
  while (!conversation.ack.has_value() && conversation.ReadOne()) {
  }
  stream->WritesDone();
  if (conversation.ack.has_value()) {
    context->TryCancel();  // The answer is known; the stream is no longer needed.
    stream->Finish();
    return *conversation.ack;
  }
  const absl::Status status = rpc::FromGrpc(stream->Finish());
  if (!status.ok()) return status;
  return absl::UnavailableError("the sink closed the stream without an answer");
}

}  // namespace oxbow::rollout
