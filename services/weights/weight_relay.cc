#include "services/weights/weight_relay.h"

#include <grpcpp/support/method_handler.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "oxbow/v1/weight_channel.grpc.pb.h"
#include "rpc/status.h"
#include "services/weights/fetch_piece.h"

namespace oxbow::weights {

// Only the learner serves Watch and reports; here they are UNIMPLEMENTED.
class WeightRelay::Service final : public v1::WeightChannel::Service {
 public:
  Service(Options options, const ChunkStore& store, FollowMetrics& metrics)
      : options_(std::move(options)), store_(store), metrics_(metrics) {
    MarkMethodStreamed(
        kFetchMethod, new grpc::internal::SplitServerStreamingHandler<v1::FetchRequest, FetchPiece>(
                          [this](grpc::ServerContext* context, FetchStream* stream) {
                            return Serve(*context, *stream);
                          }));
  }

 private:
  grpc::Status Serve(grpc::ServerContext& context, FetchStream& stream) {
    v1::FetchRequest request;
    if (!stream.Read(&request)) return grpc::Status::CANCELLED;
    uint64_t offset = request.first_offset();
    for (const std::string& hash : request.chunk_sha256()) {
      const Chunk chunk = Await(hash, context, stream);
      if (chunk == nullptr || (offset > 0 && offset >= chunk->size())) {
        return rpc::ToGrpc(absl::NotFoundError(absl::StrCat("chunk is not here: ", HexOf(hash))));
      }
      if (!SendChunk(hash, chunk, offset, options_.piece_bytes, stream, options_.before_piece,
                     [this](uint64_t bytes) { metrics_.Relayed(bytes); })) {
        break;
      }
      offset = 0;
    }
    return grpc::Status::OK;
  }

  // Null if the chunk did not come in time or the call has ended.
  Chunk Await(const std::string& hash, grpc::ServerContext& context, FetchStream& stream) const {
    absl::Duration waited;
    while (true) {
      if (Chunk chunk = store_.Await(hash, options_.sign_of_life)) return chunk;
      waited += options_.sign_of_life;
      const absl::Duration limit = store_.Wants(hash) ? options_.chunk_wait : options_.unheard_wait;
      if (waited >= limit || context.IsCancelled() || !stream.Write(FetchPiece{})) return nullptr;
    }
  }

  const Options options_;
  const ChunkStore& store_;
  FollowMetrics& metrics_;
};

WeightRelay::WeightRelay(Options options, FollowMetrics& metrics)
    : store_(options.snapshots_kept, options.bytes_max),
      service_(std::make_unique<Service>(std::move(options), store_, metrics)) {}

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
