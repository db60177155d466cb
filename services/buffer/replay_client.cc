// SPDX-License-Identifier: Apache-2.0
#include "services/buffer/replay_client.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "oxbow/v1/replay_buffer.grpc.pb.h"
#include "rpc/channel.h"
#include "rpc/convert.h"
#include "rpc/protocol_revision.h"
#include "rpc/retry.h"
#include "rpc/status.h"

namespace oxbow::buffer {
namespace {

constexpr size_t kPageMax = 1000;    // Entries, or prompts, of one List.
constexpr size_t kUnwantedMax = 32;  // Entries that a List has room for besides those asked for.

}  // namespace

struct ReplayClient::Impl {
  Impl(std::string at, absl::Duration timeout, std::string of)
      : endpoint(std::move(at)),
        call_timeout(timeout),
        run(std::move(of)),
        stub(v1::ReplayBuffer::NewStub(rpc::Connect(endpoint))) {}
  Impl(const Impl& other, absl::Duration end)
      : endpoint(other.endpoint),
        call_timeout(other.call_timeout),
        run(other.run),
        stub(other.stub),
        ends_at(end) {}

  // One deadline for all tries, so that a caller waits no longer than it asked for.
  absl::Status Call(const char* name,
                    const std::function<grpc::Status(grpc::ClientContext&)>& attempt) {
    const absl::Duration deadline = std::min(ends_at, Clock::Steady().Now() + call_timeout);
    const auto once = [&]() -> absl::Status {
      const absl::Duration left = deadline - Clock::Steady().Now();
      if (left <= absl::ZeroDuration()) return absl::DeadlineExceededError("no time left to retry");
      const auto context = rpc::ContextWithDeadline(left);
      return rpc::FromGrpc(attempt(*context));
    };
    return Annotate(rpc::Retry({}, once), absl::StrCat("replay buffer ", endpoint, " ", name));
  }

  const std::string endpoint;
  const absl::Duration call_timeout;
  const std::string run;
  const std::shared_ptr<v1::ReplayBuffer::Stub> stub;  // Shared by clients of Within.
  const absl::Duration ends_at = absl::InfiniteDuration();
};

namespace {

// Leaves dtype and shape.
std::string TakeLatents(v1::ReplayEntry& entry) {
  if (entry.trajectory().latents().data().empty()) return "";
  return std::exchange(*entry.mutable_trajectory()->mutable_latents()->mutable_data(), "");
}

// Writes the entries of one Offer: those of up to kWholeBytesMax together in messages, others in
// chunks.
class OfferWriter {
 public:
  using Stream = grpc::ClientReaderWriter<v1::OfferRequest, v1::OfferResponse>;
  OfferWriter(Stream& stream, Epoch epoch, const std::string& run) : stream_(stream) {
    message_.set_epoch(epoch.value);
    message_.set_run_uid(run);
  }

  // False if the stream is broken; `entry` is without its latents.
  bool Write(const v1::ReplayEntry& entry, const std::string& latents) {
    const uint64_t size = entry.ByteSizeLong() + latents.size();
    if (whole_bytes_ > 0 && whole_bytes_ + size > kWholeBytesMax && !Flush()) return false;
    if (size > kWholeBytesMax) return WriteChunks(entry, latents);
    v1::ReplayEntry& whole = *message_.mutable_whole()->add_entries();
    whole = entry;
    if (!latents.empty()) whole.mutable_trajectory()->mutable_latents()->set_data(latents);
    whole_bytes_ += size;
    return true;
  }
  bool Flush() {
    const bool written = whole_bytes_ == 0 || stream_.Write(message_);
    message_.clear_message();
    whole_bytes_ = 0;
    return written;
  }

 private:
  static constexpr uint64_t kWholeBytesMax = uint64_t{4} << 20;

  bool WriteChunks(const v1::ReplayEntry& entry, const std::string& latents) {
    *message_.mutable_header() = entry;
    if (!stream_.Write(message_)) return false;
    const bool written =
        rpc::ForEachChunk(latents, rpc::kChunkBytes, [&](uint64_t offset, std::string_view piece) {
          message_.mutable_chunk()->set_offset(offset);
          message_.mutable_chunk()->set_data(piece.data(), piece.size());
          return stream_.Write(message_);
        });
    message_.clear_message();
    return written;
  }

  Stream& stream_;
  v1::OfferRequest message_;
  uint64_t whole_bytes_ = 0;
};

// Puts the entries of a Read together: each is a header with its chunks in order, or whole. What
// does not fit together is kDataLoss, not kUnavailable: asking again would not help.
class EntriesRead {
 public:
  grpc::Status TakeAll(grpc::ClientReader<v1::ReadResponse>& reader) {
    for (v1::ReadResponse message; reader.Read(&message);) Take(message);
    grpc::Status status = reader.Finish();
    EndEntry();
    if (status.ok() && !fits_) {
      return grpc::Status(grpc::StatusCode::DATA_LOSS, "answer does not fit its header");
    }
    return status;
  }
  std::vector<v1::ReplayEntry>& entries() { return entries_; }

 private:
  void Take(v1::ReadResponse& message) {
    if (message.has_chunk()) {
      fits_ &= open_ && message.chunk().offset() == latents_.size();
      latents_ += message.chunk().data();
      return;
    }
    EndEntry();
    if (message.has_header()) {
      entries_.push_back(std::move(*message.mutable_header()));
      open_ = true;
    }
    for (v1::ReplayEntry& entry : *message.mutable_whole()->mutable_entries()) {
      Check(entry, entry.trajectory().latents().data().size());
      entries_.push_back(std::move(entry));
    }
  }
  void EndEntry() {
    if (!std::exchange(open_, false)) return;
    Check(entries_.back(), latents_.size());
    if (latents_.empty()) return;
    entries_.back().mutable_trajectory()->mutable_latents()->set_data(std::exchange(latents_, ""));
  }
  void Check(const v1::ReplayEntry& entry, uint64_t bytes) {
    const auto declared = rpc::DeclaredBytes(entry.trajectory().latents(), uint64_t{1} << 40);
    fits_ &= declared.ok() && *declared == bytes;
  }

  std::vector<v1::ReplayEntry> entries_;
  bool open_ = false;  // The last one still gets chunks.
  bool fits_ = true;
  std::string latents_;
};

}  // namespace

ReplayClient::ReplayClient(std::string endpoint, absl::Duration timeout, std::string run)
    : impl_(std::make_unique<Impl>(std::move(endpoint), timeout, std::move(run))) {}

ReplayClient::ReplayClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

ReplayClient::~ReplayClient() = default;

ReplayClient ReplayClient::Within(absl::Duration left) const {
  return ReplayClient(std::make_unique<Impl>(*impl_, Clock::Steady().Now() + left));
}

absl::StatusOr<v1::OfferResponse> ReplayClient::Offer(Epoch epoch,
                                                      std::vector<v1::ReplayEntry> entries) {
  if (entries.empty()) return v1::OfferResponse();
  std::vector<std::string> latents;
  for (v1::ReplayEntry& entry : entries) latents.push_back(TakeLatents(entry));
  v1::OfferResponse response;
  OXBOW_RETURN_IF_ERROR(impl_->Call("Offer", [&](grpc::ClientContext& context) {
    response.Clear();
    const auto stream = impl_->stub->Offer(&context);
    OfferWriter writer(*stream, epoch, impl_->run);
    bool written = true;  // If not, Finish says why.
    for (size_t i = 0; written && i < entries.size(); ++i) {
      written = writer.Write(entries[i], latents[i]);
    }
    if (written && writer.Flush()) stream->WritesDone();
    for (v1::OfferResponse part; stream->Read(&part);) response = std::move(part);
    return stream->Finish();
  }));
  if (response.results_size() != static_cast<int>(entries.size())) {
    return absl::InternalError(absl::StrCat("replay buffer answered ", response.results_size(),
                                            " outcomes for ", entries.size(), " entries"));
  }
  return response;
}

absl::StatusOr<v1::DrawResponse> ReplayClient::Draw(Epoch epoch, LearnerStep step, uint32_t count,
                                                    uint64_t seed, const std::string& table) {
  v1::DrawRequest request;
  request.set_epoch(epoch.value);
  request.set_run_uid(impl_->run);
  request.set_step(step.value);
  request.set_count(count);
  request.set_seed(seed);
  request.set_table(table);
  v1::DrawResponse response;
  OXBOW_RETURN_IF_ERROR(impl_->Call("Draw", [&](grpc::ClientContext& context) {
    return impl_->stub->Draw(&context, request, &response);
  }));
  return response;
}

absl::StatusOr<std::vector<v1::ReplayEntry>> ReplayClient::List(const std::string& table) {
  std::vector<v1::ReplayEntry> entries;
  EntryId after;
  while (true) {
    OXBOW_ASSIGN_OR_RETURN(std::vector<v1::ReplayEntry> page, ListPage(table, after, 0));
    if (page.empty()) return entries;
    after = EntryId(page.back().entry_id());
    for (v1::ReplayEntry& entry : page) entries.push_back(std::move(entry));
  }
}

absl::StatusOr<std::vector<v1::ReplayEntry>> ReplayClient::ListPage(const std::string& table,
                                                                    EntryId after, uint32_t limit) {
  v1::ListRequest request;
  request.set_table(table);
  request.set_after_entry_id(after.value);
  request.set_limit(limit);
  return Page(request);
}

absl::StatusOr<std::vector<v1::ReplayEntry>> ReplayClient::Page(const v1::ListRequest& request) {
  v1::ListResponse response;
  OXBOW_RETURN_IF_ERROR(impl_->Call("List", [&](grpc::ClientContext& context) {
    return impl_->stub->List(&context, request, &response);
  }));
  if ((request.has_newest() || !request.prompt_ids().empty()) && !response.selected()) {
    return absl::UnimplementedError("the replay buffer is of an older version");
  }
  return std::vector<v1::ReplayEntry>(std::make_move_iterator(response.mutable_entries()->begin()),
                                      std::make_move_iterator(response.mutable_entries()->end()));
}

// An answer that was cut for its size ends with an entry: the prompts behind that one are left.
absl::StatusOr<std::vector<v1::ReplayEntry>> ReplayClient::ListOf(
    const std::vector<PromptId>& prompts) {
  std::vector<v1::ReplayEntry> entries;
  for (size_t next = 0; next < prompts.size();) {
    v1::ListRequest request;
    const size_t end = std::min(prompts.size(), next + kPageMax);
    for (size_t i = next; i < end; ++i) request.add_prompt_ids(prompts[i].value);
    OXBOW_ASSIGN_OR_RETURN(std::vector<v1::ReplayEntry> page, Page(request));
    const PromptId last(page.empty() ? 0 : page.back().prompt().id());
    while (next < end && (page.empty() || prompts[next] != last)) ++next;
    if (!page.empty()) ++next;
    std::move(page.begin(), page.end(), std::back_inserter(entries));
  }
  return entries;
}

// A page has room for some that are not wanted. Where they are many pages grow, so that few calls
// find the rest.
absl::StatusOr<std::vector<v1::ReplayEntry>> ReplayClient::ListNewest(
    LearnerStep step, const replay::DrawLimits& limits, size_t count,
    const std::function<bool(const v1::ReplayEntry&)>& wanted) {
  v1::ListRequest request;
  request.mutable_newest()->set_step(step.value);
  request.mutable_newest()->set_uses_max(limits.uses_max);
  request.mutable_newest()->set_age_max(limits.age_max);
  std::vector<v1::ReplayEntry> entries;
  for (size_t limit = count + kUnwantedMax; entries.size() < count; limit *= 2) {
    limit = std::min(kPageMax, limit);
    request.set_limit(static_cast<uint32_t>(limit));
    OXBOW_ASSIGN_OR_RETURN(std::vector<v1::ReplayEntry> page, Page(request));
    if (page.empty()) break;
    request.set_after_entry_id(page.back().entry_id());
    request.mutable_newest()->set_after_birth_step(page.back().birth_step());
    std::copy_if(std::make_move_iterator(page.begin()), std::make_move_iterator(page.end()),
                 std::back_inserter(entries), wanted);
  }
  if (entries.size() > count) entries.resize(count);
  return entries;
}

absl::StatusOr<v1::VerifyResponse> ReplayClient::Verify(const std::string& cursor, uint32_t limit) {
  v1::VerifyRequest request;
  request.set_cursor(cursor);
  request.set_limit(limit);
  v1::VerifyResponse response;
  OXBOW_RETURN_IF_ERROR(impl_->Call("Verify", [&](grpc::ClientContext& context) {
    return impl_->stub->Verify(&context, request, &response);
  }));
  return response;
}

absl::StatusOr<v1::ReplayEntry> ReplayClient::Read(EntryId entry, uint32_t first, uint32_t count) {
  v1::ReadRequest request;
  request.set_entry_id(entry.value);
  request.set_first_latent(first);
  request.set_latents(count);
  return Read(request);
}

absl::StatusOr<v1::ReplayEntry> ReplayClient::ReadWhole(EntryId entry) {
  v1::ReadRequest request;
  request.set_entry_id(entry.value);
  request.set_whole(true);
  request.set_conditioning(true);
  return Read(request);
}

absl::StatusOr<v1::ReplayEntry> ReplayClient::ReadPicture(EntryId entry) {
  v1::ReadRequest request;
  request.set_entry_id(entry.value);
  request.set_conditioning(true);
  return Read(request);
}

absl::StatusOr<std::vector<v1::ReplayEntry>> ReplayClient::ReadMany(
    const std::vector<EntryId>& entries) {
  if (entries.empty()) return std::vector<v1::ReplayEntry>();
  v1::ReadRequest request;
  for (const EntryId entry : entries) request.add_entry_ids(entry.value);
  return ReadAll(request);
}

absl::StatusOr<v1::ReplayEntry> ReplayClient::Read(const v1::ReadRequest& request) {
  OXBOW_ASSIGN_OR_RETURN(std::vector<v1::ReplayEntry> entries, ReadAll(request));
  if (entries.size() != 1) {
    return absl::DataLossError(
        absl::StrCat("replay buffer answered ", entries.size(), " entries for one"));
  }
  return std::move(entries[0]);
}

absl::StatusOr<std::vector<v1::ReplayEntry>> ReplayClient::ReadAll(const v1::ReadRequest& request) {
  std::vector<v1::ReplayEntry> answer;
  OXBOW_RETURN_IF_ERROR(impl_->Call("Read", [&](grpc::ClientContext& context) {
    EntriesRead read;
    const grpc::Status status = read.TakeAll(*impl_->stub->Read(&context, request));
    answer = std::move(read.entries());
    return status;
  }));
  return answer;
}

absl::Status ReplayClient::Advance(Epoch epoch, LearnerStep step, const std::vector<EntryId>& used,
                                   const std::vector<EntryId>& evict,
                                   const std::vector<Rescored>& rescored, uint32_t failures_max) {
  v1::AdvanceRequest request;
  request.set_epoch(epoch.value);
  request.set_run_uid(impl_->run);
  request.set_step(step.value);
  for (const EntryId id : used) request.add_used_entry_ids(id.value);
  for (const EntryId id : evict) request.add_evict_entry_ids(id.value);
  request.set_failures_max(failures_max);
  for (const Rescored& one : rescored) {
    v1::AdvanceRequest::Rescored& added = *request.add_rescored();
    added.set_entry_id(one.entry.value);
    if (one.reward.has_value()) added.set_reward(*one.reward);
    added.set_failed(one.failed);
  }
  v1::AdvanceResponse response;
  return impl_->Call("Advance", [&](grpc::ClientContext& context) {
    return impl_->stub->Advance(&context, request, &response);
  });
}

absl::Status ReplayClient::Checkpoint(Epoch epoch, const std::string& name, uint32_t keep) {
  v1::CheckpointRequest request;
  request.set_epoch(epoch.value);
  request.set_run_uid(impl_->run);
  request.set_name(name);
  request.set_keep(keep);
  v1::CheckpointResponse response;
  return impl_->Call("Checkpoint", [&](grpc::ClientContext& context) {
    return impl_->stub->Checkpoint(&context, request, &response);
  });
}

absl::Status ReplayClient::Restore(Epoch epoch, const std::string& name, const RestoreFor& wanted) {
  v1::RestoreRequest request;
  request.set_epoch(epoch.value);
  request.set_run_uid(impl_->run);
  request.set_name(name);
  request.set_step(wanted.step.value);
  request.set_shards(wanted.shards);
  request.set_shard(wanted.shard);
  request.set_take_from(wanted.take_from);
  request.set_protocol(kProtocolRevision);
  request.set_start(wanted.start);
  v1::RestoreResponse response;
  OXBOW_RETURN_IF_ERROR(impl_->Call("Restore", [&](grpc::ClientContext& context) {
    return impl_->stub->Restore(&context, request, &response);
  }));
  const std::string buffer = absl::StrCat("the replay buffer at ", impl_->endpoint);
  OXBOW_RETURN_IF_ERROR(
      rpc::CheckRevision(buffer, response.protocol(), response.version(), "the learner"));
  if (const auto other = rpc::OtherBuildText(buffer, response.version(), "the learner");
      !other.empty()) {
    OXBOW_LOG(Warning) << other;
  }
  if (wanted.without_copy != nullptr) *wanted.without_copy = response.without_copy();
  return absl::OkStatus();
}

absl::StatusOr<v1::InfoResponse> ReplayClient::Info() {
  v1::InfoResponse response;
  OXBOW_RETURN_IF_ERROR(impl_->Call("Info", [&](grpc::ClientContext& context) {
    return impl_->stub->Info(&context, v1::InfoRequest(), &response);
  }));
  return response;
}

}  // namespace oxbow::buffer
