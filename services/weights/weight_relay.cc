// SPDX-License-Identifier: Apache-2.0
#include "services/weights/weight_relay.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "oxbow/v1/weight_channel.grpc.pb.h"
#include "rpc/stream.h"
#include "services/weights/fetch_piece.h"

namespace oxbow::weights {

// Only the learner serves Watch and reports; here they are UNIMPLEMENTED.
class WeightRelay::Service final : public v1::WeightChannel::Service, public rpc::HasStreams {
 public:
  Service(Options options, ChunkStore& store, ContentStore& content, FollowMetrics& metrics)
      : options_(std::move(options)),
        store_(store),
        content_(content),
        metrics_(metrics),
        runner_(options_.streams) {
    MarkMethodStreamed(kFetchMethod, nullptr);
    MarkMethodCallback(kFetchMethod,
                       rpc::StreamHandler<v1::FetchRequest, FetchPiece>(
                           runner_, [this](FetchStream& stream) { return Fetch(stream); }));
  }
  rpc::StreamRunner& streams() override { return runner_; }

 private:
  // Null if it is not here. kDataLoss once for each chunk whose place has other bytes now.
  absl::StatusOr<Chunk> Read(const std::string& hash) {
    absl::StatusOr<Chunk> chunk = store_.Read(hash);
    if (chunk.ok()) return *chunk != nullptr ? *chunk : content_.Find(hash);
    OXBOW_LOG(Error) << "frozen weights cannot be passed on to other workers"
                     << Field("error", std::string(chunk.status().message()));
    store_.ForgetLost(hash);
    return chunk;
  }

  rpc::Handler Fetch(FetchStream& stream) {
    v1::FetchRequest request;
    if (!co_await stream.Read(request)) co_return absl::CancelledError("the child asked nothing");
    const ChunkStore::Listener listener(store_, [&stream] { stream.Wake(); });
    const PieceRule rule{.bytes_max = options_.piece_bytes,
                         .before = options_.before_piece,
                         .after = [this](uint64_t bytes) { metrics_.Relayed(bytes); }};
    ChunkSender sender(stream);
    uint64_t offset = request.first_offset();
    for (const std::string& hash : request.chunk_sha256()) {
      const absl::Duration asked = Clock::Steady().Now();
      absl::Duration told = asked;
      absl::StatusOr<Chunk> read = Read(hash);
      Chunk chunk = read.ok() ? *read : nullptr;
      if (chunk == nullptr) {  // Before a wait, or the end.
        rpc::Part so_far_sent = sender.Flush();
        if (absl::Status status = co_await so_far_sent; !status.ok()) co_return status;
      }
      while (read.ok() && chunk == nullptr && !request.at_once()) {
        co_await stream.Wait(options_.sign_of_life);
        read = Read(hash);
        chunk = read.ok() ? *read : nullptr;
        if (chunk != nullptr) break;
        const absl::Duration now = Clock::Steady().Now();
        const absl::Duration limit =
            store_.Wants(hash) ? options_.chunk_wait : options_.unheard_wait;
        if (stream.cancelled() || now - asked >= limit) break;
        if (now - told < options_.sign_of_life) continue;  // Woken by another chunk.
        FetchPiece sign_of_life;
        if (!co_await stream.Write(std::move(sign_of_life))) co_return absl::CancelledError("gone");
        told = now;
      }
      if (chunk == nullptr || (offset > 0 && offset >= chunk->size())) {
        co_return absl::NotFoundError(absl::StrCat("chunk is not here: ", HexOf(hash)));
      }
      rpc::Part chunk_sent = sender.Send(hash, chunk, std::exchange(offset, 0), rule);
      if (absl::Status status = co_await chunk_sent; !status.ok()) co_return status;
    }
    rpc::Part rest_sent = sender.Flush();
    co_return co_await rest_sent;
  }

  const Options options_;
  ChunkStore& store_;
  ContentStore& content_;
  FollowMetrics& metrics_;
  rpc::StreamRunner runner_;  // Last: it waits for the streams.
};

WeightRelay::WeightRelay(Options options, FollowMetrics& metrics)
    : store_(options.snapshots_kept, options.bytes_max),
      content_(options.content_bytes_max),
      service_(std::make_unique<Service>(std::move(options), store_, content_, metrics)) {}

absl::StatusOr<std::unique_ptr<WeightRelay>> WeightRelay::Start(Options options,
                                                                FollowMetrics& metrics) {
  const std::string listen = options.listen;
  std::unique_ptr<WeightRelay> relay(new WeightRelay(std::move(options), metrics));
  OXBOW_ASSIGN_OR_RETURN(relay->server_,
                         rpc::Server::Start({.listen = listen}, {relay->service_.get()}));
  return relay;
}

WeightRelay::~WeightRelay() = default;  // The server goes first: its calls use the store.

}  // namespace oxbow::weights
