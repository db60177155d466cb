// SPDX-License-Identifier: Apache-2.0
#include "services/buffer/replay_service.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/build_version.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "rpc/call_checks.h"
#include "rpc/channel.h"
#include "rpc/convert.h"
#include "rpc/protocol_revision.h"
#include "rpc/status.h"
#include "services/buffer/entry_conversion.h"

namespace oxbow::buffer {
namespace {

constexpr uint64_t kResponseBytesMax = rpc::kMessageBytesMax * 3 / 4;  // Leaves room for the rest.
constexpr uint64_t kWholeBytesMax = uint64_t{4} << 20;  // A larger entry is read in chunks.
constexpr uint64_t kAloneBytes = uint64_t{128} << 10;   // A smaller one is copied into a message
constexpr uint64_t kGatheredBytes = uint64_t{1} << 20;  // of so many, with others.
constexpr uint64_t kListMax = 1000;
constexpr int kOfferMethod = 0;  // Their indices in service ReplayBuffer.
constexpr int kReadMethod = 2;

std::vector<EntryId> Ids(const google::protobuf::RepeatedField<uint64_t>& values) {
  std::vector<EntryId> ids;
  for (const uint64_t value : values) ids.push_back(EntryId(value));
  return ids;
}

std::string OutcomeName(size_t outcome) {
  return v1::OfferOutcome_Name(ToProto(static_cast<Outcome>(outcome)));
}

std::vector<Rescored> RescoredOf(const v1::AdvanceRequest& request) {
  std::vector<Rescored> all;
  for (const v1::AdvanceRequest::Rescored& one : request.rescored()) {
    all.push_back({.entry = EntryId(one.entry_id()),
                   .reward = one.has_reward() ? std::optional(one.reward()) : std::nullopt,
                   .failed = one.failed()});
  }
  return all;
}

// Shorter pieces are copied together: a slice costs as much as a few thousand bytes.
constexpr uint64_t kPieceBytesMin = uint64_t{16} << 10;

using rpc::FieldOpening;

// `inner` and the bytes behind it, in a field.
std::string Within(int field, const std::string& inner, uint64_t bytes) {
  return FieldOpening(field, inner.size() + bytes) + inner;
}

// The message but for the latents, which come last.
std::string HeadOf(const v1::ReadResponse& message, uint64_t bytes) {
  using Chunk = v1::OfferRequest::Chunk;
  if (message.has_chunk()) {
    const std::string fields = message.chunk().SerializeAsString();
    return Within(v1::ReadResponse::kChunkFieldNumber,
                  fields + FieldOpening(Chunk::kDataFieldNumber, bytes), bytes);
  }
  std::string head = FieldOpening(v1::Tensor::kDataFieldNumber, bytes);
  head = Within(v1::Trajectory::kLatentsFieldNumber, head, bytes);
  head = Within(v1::ReplayEntry::kTrajectoryFieldNumber, head, bytes);
  head = message.whole().entries(0).SerializeAsString() + head;
  head = Within(v1::WholeEntries::kEntriesFieldNumber, head, bytes);
  return Within(v1::ReadResponse::kWholeFieldNumber, head, bytes);
}

}  // namespace

std::vector<grpc::Slice> ReadAnswer::Slices() const {
  const uint64_t bytes = latents.bytes();
  if (bytes == 0) return {grpc::Slice(message.SerializeAsString())};
  std::vector<grpc::Slice> slices = {grpc::Slice(HeadOf(message, bytes))};
  if (bytes / latents.pieces.size() < kPieceBytesMin) {
    slices.emplace_back(latents.Joined());
  } else {
    for (const std::string_view piece : latents.pieces) {
      slices.push_back(rpc::SliceOf(piece, latents.memory));
    }
  }
  return slices;
}

ReplayService::ReplayService(Options options, ReplayStore& store, ReplayMetrics& metrics,
                             const Clock& clock)
    : options_(options),
      store_(store),
      metrics_(metrics),
      clock_(clock),
      budget_(options.offer_bytes_max),
      runner_(options.streams) {
  MarkMethodStreamed(kOfferMethod, nullptr);
  MarkMethodCallback(kOfferMethod,
                     rpc::StreamHandler<v1::OfferRequest, v1::OfferResponse>(
                         runner_, [this](OfferStream& stream) { return Offer(stream); }));
  MarkMethodStreamed(kReadMethod, nullptr);
  MarkMethodCallback(kReadMethod,
                     rpc::StreamHandler<v1::ReadRequest, ReadAnswer>(
                         runner_, [this](ReadStream& stream) { return Read(stream); }));
}

absl::Status ReplayService::Ended(const absl::Status& status) {
  if (!status.ok()) {
    metrics_.CallFailed();
    OXBOW_LOG(Debug) << "call refused" << Field("reason", status.ToString());
  }
  return status;
}

// The batches of one Offer that were handed to the store and not answered yet. Thread-safe.
class ReplayService::Batches {
 public:
  explicit Batches(OfferStream& stream)
      : stream_(std::static_pointer_cast<OfferStream>(stream.shared_from_this())) {}

  void Begin(uint64_t bytes) {
    absl::MutexLock lock(&mutex_);
    ++waiting_;
    bytes_ += bytes;
  }
  void End(uint64_t bytes, absl::StatusOr<v1::OfferResponse> response) {
    const absl::Status status = response.status();
    if (status.ok()) {
      stream_->Send(*std::move(response));
    } else {
      stream_->End(status);
    }
    {
      absl::MutexLock lock(&mutex_);  // Only now: the stream may end when nothing waits.
      --waiting_;
      bytes_ -= bytes;
      status_.Update(status);
    }
    stream_->Wake();
  }
  const std::optional<Trace>& trace() const { return stream_->trace(); }
  bool done() const {
    absl::MutexLock lock(&mutex_);
    return waiting_ == 0;
  }
  bool full() const {
    absl::MutexLock lock(&mutex_);
    return bytes_ >= kUnderWayMax || waiting_ >= kBatchesMax;
  }
  absl::Status status() const {
    absl::MutexLock lock(&mutex_);
    return status_;
  }

 private:
  static constexpr uint64_t kUnderWayMax = uint64_t{16} << 20;
  static constexpr int kBatchesMax = 1024;
  const std::shared_ptr<OfferStream> stream_;
  mutable absl::Mutex mutex_;
  int waiting_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);  // The first error.
};

rpc::Handler ReplayService::Offer(OfferStream& stream) {
  const auto batches = std::make_shared<Batches>(stream);
  const auto make = [this] {
    return std::make_shared<OfferAssembly>(options_.entry_bytes_max, budget_);
  };
  std::shared_ptr<OfferAssembly> batch = make();
  absl::Duration start = clock_.Now();
  bool any = false;
  absl::Status status;
  while (status.ok()) {
    v1::OfferRequest request;
    if (!co_await stream.Read(request)) break;
    const bool ends = request.ends_batch();
    status = batch->Add(std::move(request));
    if (!status.ok() || !ends) continue;
    any = true;
    StoreNext(std::exchange(batch, make()), std::exchange(start, clock_.Now()), batches);
    while (batches->full()) co_await stream.Wait();
    status = batches->status();
  }
  // A stream that broke off ends like one that was closed; only this tells them apart.
  if (status.ok() && stream.cancelled()) {
    status = absl::CancelledError("Offer was cancelled by the caller");
  }
  if (status.ok() && (batch->started() || !any)) StoreNext(batch, start, batches);
  while (!batches->done()) co_await stream.Wait();
  co_return Ended(status.ok() ? batches->status() : status);
}

void ReplayService::StoreNext(const std::shared_ptr<OfferAssembly>& batch, absl::Duration start,
                              const std::shared_ptr<Batches>& batches) {
  const uint64_t bytes = batch->bytes();
  batches->Begin(bytes);
  const Epoch epoch = batch->caller().epoch;
  Store(batch, start, [batches, bytes, epoch](absl::StatusOr<v1::OfferResponse> response) {
    const TraceScope scope(batches->trace());
    if (response.ok()) {
      OXBOW_LOG(Debug) << "entries offered" << Field("epoch", epoch)
                       << Field("entries", response->results_size()) << Field("bytes", bytes);
    }
    batches->End(bytes, std::move(response));
  });
}

void ReplayService::Store(const std::shared_ptr<OfferAssembly>& batch, absl::Duration start,
                          Answer answer) {
  std::vector<Entry> entries = batch->Finish();
  const Caller caller = batch->caller();
  auto answered = [this, batch, start,
                   answer = std::move(answer)](const absl::StatusOr<OfferReport>& report) {
    if (!report.ok()) return answer(report.status());
    v1::OfferResponse response;
    for (const OfferResult& offered : report->results) {
      v1::OfferResponse::Result& result = *response.add_results();
      result.set_entry_id(offered.entry.value);
      result.set_outcome(ToProto(offered.outcome));
      result.set_replaced_entry_id(offered.replaced.value);
      result.set_error(offered.error);
    }
    metrics_.Offered(*report, batch->bytes(), clock_.Now() - start);
    answer(std::move(response));
  };
  store_.OfferAsync(caller, std::move(entries), std::move(answered));
}

grpc::Status ReplayService::Draw(grpc::ServerContext* context, const v1::DrawRequest* request,
                                 v1::DrawResponse* response) {
  const TraceScope scope(rpc::TraceOf(context));
  return rpc::ToGrpc(Ended(DoDraw(*request, *response)));
}

absl::Status ReplayService::DoDraw(const v1::DrawRequest& request, v1::DrawResponse& response) {
  const LearnerStep step(request.step());
  OXBOW_ASSIGN_OR_RETURN(const DrawReport report,
                         store_.Draw(CallerOf(request), step, request.count(), request.seed(),
                                     TableOf(request.table())));
  response.set_eligible(report.eligible);
  for (const Entry& entry : report.entries) {
    OXBOW_ASSIGN_OR_RETURN(*response.add_entries(), EntryToProto(entry));
  }
  metrics_.Drawn(report.entries.size());
  OXBOW_LOG(Debug) << "entries drawn" << Field("step", step)
                   << Field("entries", report.entries.size());
  return absl::OkStatus();
}

rpc::Handler ReplayService::Read(ReadStream& stream) {
  v1::ReadRequest request;
  if (!co_await stream.Read(request)) co_return absl::CancelledError("the reader asked nothing");
  rpc::Part part =
      request.entry_ids().empty() ? ReadOne(stream, request) : ReadMany(stream, request);
  const absl::Status status = co_await part;
  co_return Ended(status);
}

// Sends what the range has left.
rpc::Part ReplayService::SendLatents(ReadStream& stream, Range& range) {
  while (range.next < range.end) {
    const absl::StatusOr<LatentPieces> latents = NextLatents(range);
    if (!latents.ok()) co_return latents.status();
    const uint64_t bytes = latents->bytes();
    for (uint64_t offset = 0; offset < bytes; offset += rpc::kChunkBytes) {
      ReadAnswer part;
      part.message.mutable_chunk()->set_offset(range.sent + offset);
      part.latents = latents->Part(offset, rpc::kChunkBytes);
      if (!co_await stream.Write(std::move(part))) {
        co_return absl::CancelledError("reader is gone");
      }
    }
    range.sent += bytes;
  }
  metrics_.BytesRead(range.sent);
  const TraceScope scope(stream.trace());
  OXBOW_LOG(Debug) << "entry read" << Field("entry", range.entry) << Field("bytes", range.sent);
  co_return absl::OkStatus();
}

rpc::Part ReplayService::ReadOne(ReadStream& stream, const v1::ReadRequest& request) {
  Range range;
  absl::StatusOr<v1::ReadResponse> header = HeaderOf(request, range);
  if (!header.ok()) co_return header.status();
  ReadAnswer first{.message = *std::move(header), .latents = {}};
  if (!co_await stream.Write(std::move(first))) co_return absl::CancelledError("reader is gone");
  rpc::Part latents = SendLatents(stream, range);
  co_return co_await latents;
}

// Small entries that wait until they fill a message.
struct ReplayService::Gathered {
  v1::ReadResponse message;
  uint64_t bytes = 0;
};

void ReplayService::Gather(v1::ReplayEntry entry, const Range& range, Gathered& gathered) {
  const uint64_t size = entry.ByteSizeLong() + entry.stored_bytes();
  if (range.end > range.next) {
    absl::StatusOr<std::string> latents =
        store_.ReadLatents(range.entry, static_cast<uint32_t>(range.next),
                           static_cast<uint32_t>(range.end - range.next));
    if (!latents.ok()) return;  // It has left meanwhile.
    metrics_.BytesRead(latents->size());
    entry.mutable_trajectory()->mutable_latents()->set_data(*std::move(latents));
  }
  gathered.bytes += size;
  *gathered.message.mutable_whole()->add_entries() = std::move(entry);
}

rpc::Part ReplayService::SendGathered(ReadStream& stream, Gathered& gathered) {
  if (gathered.bytes == 0) co_return absl::OkStatus();
  ReadAnswer full{.message = std::exchange(gathered, {}).message, .latents = {}};
  if (!co_await stream.Write(std::move(full))) co_return absl::CancelledError("reader is gone");
  co_return absl::OkStatus();
}

// An entry whose latents are sent as they were read.
rpc::Part ReplayService::SendAlone(ReadStream& stream, v1::ReadResponse& header, Range& range) {
  v1::ReplayEntry& entry = *header.mutable_header();
  ReadAnswer answer;
  if (entry.ByteSizeLong() + entry.stored_bytes() > kWholeBytesMax) {
    answer.message = std::move(header);
    if (!co_await stream.Write(std::move(answer))) co_return absl::CancelledError("reader is gone");
    rpc::Part latents = SendLatents(stream, range);
    co_return co_await latents;
  }
  absl::StatusOr<LatentPieces> latents =
      store_.ReadPieces(range.entry, static_cast<uint32_t>(range.next),
                        static_cast<uint32_t>(range.end - range.next));
  if (!latents.ok()) co_return absl::OkStatus();  // It has left meanwhile.
  metrics_.BytesRead(latents->bytes());
  answer.latents = *std::move(latents);
  *answer.message.mutable_whole()->add_entries() = std::move(entry);
  if (!co_await stream.Write(std::move(answer))) co_return absl::CancelledError("reader is gone");
  co_return absl::OkStatus();
}

rpc::Part ReplayService::ReadMany(ReadStream& stream, const v1::ReadRequest& request) {
  v1::ReadRequest one;
  one.set_whole(true);
  one.set_conditioning(request.conditioning());
  Gathered gathered;
  for (const uint64_t id : request.entry_ids()) {
    one.set_entry_id(id);
    Range range;
    absl::StatusOr<v1::ReadResponse> header = HeaderOf(one, range);
    if (absl::IsNotFound(header.status()) || absl::IsDataLoss(header.status())) continue;
    if (!header.ok()) co_return header.status();
    const bool alone = header->header().stored_bytes() >= kAloneBytes;
    if (!alone) Gather(std::move(*header->mutable_header()), range, gathered);
    if (alone || gathered.bytes >= kGatheredBytes) {
      rpc::Part sending = SendGathered(stream, gathered);
      const absl::Status sent = co_await sending;
      if (!sent.ok()) co_return sent;
    }
    if (!alone) continue;
    rpc::Part sending = SendAlone(stream, *header, range);
    const absl::Status sent = co_await sending;
    if (!sent.ok()) co_return sent;
  }
  rpc::Part last = SendGathered(stream, gathered);
  co_return co_await last;
}

absl::StatusOr<v1::ReadResponse> ReplayService::HeaderOf(const v1::ReadRequest& request,
                                                         Range& range) {
  const EntryId id(request.entry_id());
  OXBOW_ASSIGN_OR_RETURN(const Entry entry, store_.Find(id, request.conditioning()));
  v1::ReadResponse message;
  OXBOW_ASSIGN_OR_RETURN(*message.mutable_header(), EntryToProto(entry));
  v1::Trajectory& trajectory = *message.mutable_header()->mutable_trajectory();
  const uint64_t stored_first = trajectory.first_latent();
  const uint64_t latents = request.whole() ? entry.latent_count : request.latents();
  const uint64_t first = request.whole() || latents == 0 ? stored_first : request.first_latent();
  const uint64_t end = first + latents;
  if (first < stored_first || end > stored_first + entry.latent_count) {
    return absl::OutOfRangeError(absl::StrCat("entry ", id.value, " holds latents ", stored_first,
                                              " to ", stored_first + entry.latent_count,
                                              " (exclusive), asked for ", request.first_latent(),
                                              " + ", request.latents()));
  }
  trajectory.set_first_latent(static_cast<uint32_t>(first));
  if (entry.latent_count > 0) {
    trajectory.mutable_latents()->set_shape(0, static_cast<int64_t>(latents));
  }
  range = {.entry = id,
           .next = first - stored_first,
           .end = end - stored_first,
           .per_read =
               std::max<uint64_t>(1, rpc::kChunkBytes / std::max<uint64_t>(1, entry.latent_bytes))};
  return message;
}

absl::StatusOr<LatentPieces> ReplayService::NextLatents(Range& range) {
  const uint64_t first = range.next;
  const uint64_t count = std::min(range.per_read, range.end - first);
  range.next += count;
  return store_.ReadPieces(range.entry, static_cast<uint32_t>(first), static_cast<uint32_t>(count));
}

grpc::Status ReplayService::Advance(grpc::ServerContext* context, const v1::AdvanceRequest* request,
                                    v1::AdvanceResponse*) {
  const TraceScope scope(rpc::TraceOf(context));
  return rpc::ToGrpc(Ended(DoAdvance(*request)));
}

absl::Status ReplayService::DoAdvance(const v1::AdvanceRequest& request) {
  OXBOW_ASSIGN_OR_RETURN(
      const AdvanceReport report,
      store_.Advance(CallerOf(request), LearnerStep(request.step()), Ids(request.used_entry_ids()),
                     Ids(request.evict_entry_ids()), RescoredOf(request), request.failures_max()));
  metrics_.Advanced(report);
  OXBOW_LOG(Debug) << "step advanced" << Field("step", request.step())
                   << Field("used", request.used_entry_ids_size())
                   << Field("evicted", report.evicted);
  return absl::OkStatus();
}

grpc::Status ReplayService::Checkpoint(grpc::ServerContext* context,
                                       const v1::CheckpointRequest* request,
                                       v1::CheckpointResponse*) {
  const TraceScope scope(rpc::TraceOf(context));
  const absl::Status status =
      store_.Checkpoint(CallerOf(*request), request->name(), request->keep());
  rpc::Audit(context, "Checkpoint",
             {Field("checkpoint", request->name()), Field("keep", request->keep()),
              Field("epoch", request->epoch()), Field("status", status.ToString())});
  return rpc::ToGrpc(Ended(status));
}

grpc::Status ReplayService::Restore(grpc::ServerContext* context, const v1::RestoreRequest* request,
                                    v1::RestoreResponse* response) {
  const TraceScope scope(rpc::TraceOf(context));
  response->set_protocol(kProtocolRevision);
  response->set_version(BuildVersion());
  bool without_copy = false;
  absl::Status status = rpc::CheckRevision(absl::StrCat("the learner of run ", request->run_uid()),
                                           request->protocol(), "", "the replay buffer");
  if (status.ok()) {
    status = store_.Restore(CallerOf(*request), request->name(),
                            {.step = LearnerStep(request->step()),
                             .shards = request->shards(),
                             .shard = request->shard(),
                             .take_from = request->take_from(),
                             .start = request->start(),
                             .without_copy = &without_copy});
  }
  response->set_without_copy(without_copy);
  rpc::Audit(context, "Restore",
             {Field("checkpoint", request->name()), Field("epoch", request->epoch()),
              Field("status", status.ToString())});
  return rpc::ToGrpc(Ended(status));
}

grpc::Status ReplayService::Info(grpc::ServerContext*, const v1::InfoRequest*,
                                 v1::InfoResponse* response) {
  const StoreInfo info = store_.Info();
  response->set_entries(info.entries);
  response->set_capacity(info.capacity);
  response->set_bytes(info.bytes);
  response->set_step(info.step.value);
  response->set_run_uid(info.owner.run);
  response->set_shards(info.owner.shards);
  response->set_shard(info.owner.shard);
  response->set_epoch(info.epoch.value);
  response->set_raw_reward_mean(info.reward_mean);
  response->set_priority_min(info.priority_min);
  response->set_priority_mean(info.priority_mean);
  response->set_age_mean_steps(info.age_mean_steps);
  response->set_age_max_steps(info.age_max_steps);
  response->set_uses_mean(info.uses_mean);
  for (const TableState& table : info.tables) {
    v1::TableInfo& told = *response->add_tables();
    told.set_name(table.policy.name);
    told.set_insert(replay::NameOf(table.policy.insert));
    told.set_evict(replay::NameOf(table.policy.evict));
    told.set_draw(replay::NameOf(table.policy.draw));
    told.set_capacity(table.policy.capacity);
    told.set_age_max_steps(table.policy.age_max);
    told.set_entries(table.entries);
    told.set_bytes(table.bytes);
    told.set_evicted(table.evicted);
  }
  response->set_disk_bytes(info.disk_bytes);
  response->set_disk_free_bytes(info.disk_free_bytes);
  response->set_unix_time(absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()));
  for (size_t i = 0; i < info.offers.size(); ++i) {
    v1::NamedValue& count = *response->add_offers();
    count.set_name(OutcomeName(i));
    count.set_value(static_cast<double>(info.offers[i]));
  }
  return rpc::ToGrpc(Ended(absl::OkStatus()));
}

namespace {

// Takes the entries of a table that a List asks for.
void TakeAsked(const v1::ListRequest& request, const Table& table, const Table::Usable& take) {
  const uint64_t limit =
      request.limit() == 0 ? kListMax : std::min<uint64_t>(request.limit(), kListMax);
  const EntryId after(request.after_entry_id());
  if (request.has_newest()) {
    const v1::ListRequest::Newest& newest = request.newest();
    table.Newest(LearnerStep(newest.step()),
                 {.uses_max = newest.uses_max(), .age_max = newest.age_max()}, after,
                 LearnerStep(newest.after_birth_step()), limit, take);
  } else if (request.prompt_ids().empty()) {
    table.After(after, limit, take);
  }
  for (const uint64_t prompt : request.prompt_ids()) {
    const Entry* entry = table.NewestOfPrompt(PromptId(prompt));
    if (entry != nullptr) take(*entry);
  }
}

}  // namespace

grpc::Status ReplayService::List(grpc::ServerContext*, const v1::ListRequest* request,
                                 v1::ListResponse* response) {
  return rpc::ToGrpc(Ended(DoList(*request, *response)));
}

absl::Status ReplayService::DoList(const v1::ListRequest& request, v1::ListResponse& response) {
  if (static_cast<uint64_t>(request.prompt_ids_size()) > kListMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("too many prompts: ", request.prompt_ids_size()));
  }
  response.set_selected(request.has_newest() || !request.prompt_ids().empty());
  const auto choose = [&](const Table& table, const Table::Usable& take) {
    TakeAsked(request, table, take);
  };
  OXBOW_ASSIGN_OR_RETURN(const std::vector<Entry> entries,
                         store_.List(choose, TableOf(request.table())));
  uint64_t bytes = 0;
  for (const Entry& entry : entries) {
    bytes += entry.header.size();
    if (bytes > kResponseBytesMax) break;  // The caller asks again from the last id it got.
    OXBOW_ASSIGN_OR_RETURN(*response.add_entries(), EntryToProto(entry));
  }
  return absl::OkStatus();
}

grpc::Status ReplayService::Verify(grpc::ServerContext*, const v1::VerifyRequest* request,
                                   v1::VerifyResponse* response) {
  return rpc::ToGrpc(Ended(DoVerify(*request, *response)));
}

absl::Status ReplayService::DoVerify(const v1::VerifyRequest& request,
                                     v1::VerifyResponse& response) {
  const uint64_t limit =
      request.limit() == 0 ? kListMax : std::min<uint64_t>(request.limit(), kListMax);
  OXBOW_ASSIGN_OR_RETURN(const VerifiedPage page, store_.Verify(request.cursor(), limit));
  response = ToProto(page);
  return absl::OkStatus();
}

}  // namespace oxbow::buffer
