// SPDX-License-Identifier: Apache-2.0
// ReplayBuffer over gRPC: converts, calls the store, converts back, counts. Decides nothing.
// ReplayMetrics::Holds is for the one who shows the metrics to call.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "oxbow/v1/replay_buffer.grpc.pb.h"
#include "rpc/server.h"
#include "rpc/slices.h"
#include "rpc/stream.h"
#include "services/buffer/offer_assembly.h"
#include "services/buffer/replay_client.h"
#include "services/buffer/replay_metrics.h"
#include "services/buffer/replay_store.h"
#include "services/buffer/segments.h"

namespace oxbow::buffer {

// A ReadResponse whose latents are sent without a copy (rpc/slices.h): they are slices of the
// memory that they were read into. They stand behind the other fields of what they belong to, as a
// second occurrence of the messages that they lie in: protobuf merges the two.
struct ReadAnswer {
  v1::ReadResponse message;  // With latents: a chunk, or one whole entry.
  LatentPieces latents;

  std::vector<grpc::Slice> Slices() const;
};

class ReplayService : public v1::ReplayBuffer::Service, public rpc::HasStreams {
 public:
  using OfferStream = rpc::Stream<v1::OfferRequest, v1::OfferResponse>;
  using ReadStream = rpc::Stream<v1::ReadRequest, ReadAnswer>;
  using Answer = std::function<void(absl::StatusOr<v1::OfferResponse>)>;

  struct Options {
    uint64_t entry_bytes_max = kEntryBytesMax;
    uint64_t offer_bytes_max = kOfferBytesMax;            // All Offer calls together.
    rpc::StreamRunner::Options streams = {.threads = 8};  // Most of them wait for the disk.
  };

  // `store`, `metrics` and `clock` outlive the service.
  ReplayService(Options options, ReplayStore& store, ReplayMetrics& metrics, const Clock& clock);

  grpc::Status Draw(grpc::ServerContext* context, const v1::DrawRequest* request,
                    v1::DrawResponse* response) override;
  grpc::Status Advance(grpc::ServerContext* context, const v1::AdvanceRequest* request,
                       v1::AdvanceResponse*) override;
  grpc::Status Checkpoint(grpc::ServerContext* context, const v1::CheckpointRequest* request,
                          v1::CheckpointResponse*) override;
  grpc::Status Restore(grpc::ServerContext* context, const v1::RestoreRequest* request,
                       v1::RestoreResponse*) override;
  grpc::Status Info(grpc::ServerContext*, const v1::InfoRequest*,
                    v1::InfoResponse* response) override;
  grpc::Status List(grpc::ServerContext*, const v1::ListRequest* request,
                    v1::ListResponse* response) override;
  grpc::Status Verify(grpc::ServerContext*, const v1::VerifyRequest* request,
                      v1::VerifyResponse* response) override;

  rpc::StreamRunner& streams() override { return runner_; }

  // Serve one call. Public for callers without a network.
  rpc::Handler Offer(OfferStream& stream);
  rpc::Handler Read(ReadStream& stream);

 protected:
  // Where a Read goes on, from one piece to the next.
  struct Range {
    EntryId entry;
    uint64_t next = 0;  // Indices among the entry's latents.
    uint64_t end = 0;
    uint64_t per_read = 1;
    uint64_t sent = 0;  // Bytes.
  };
  // The work of an Offer's batch and of a Read once their request is here. `answer` is called once,
  // from any thread. Virtual so that a test can lose them.
  virtual void Store(const std::shared_ptr<OfferAssembly>& batch, absl::Duration start,
                     Answer answer);
  virtual absl::StatusOr<v1::ReadResponse> HeaderOf(const v1::ReadRequest& request, Range& range);

 private:
  absl::StatusOr<LatentPieces> NextLatents(Range& range);
  class Batches;
  void StoreNext(const std::shared_ptr<OfferAssembly>& batch, absl::Duration start,
                 const std::shared_ptr<Batches>& batches);
  rpc::Part ReadOne(ReadStream& stream, const v1::ReadRequest& request);
  rpc::Part ReadMany(ReadStream& stream, const v1::ReadRequest& request);
  struct Gathered;
  void Gather(v1::ReplayEntry entry, const Range& range, Gathered& gathered);
  rpc::Part SendGathered(ReadStream& stream, Gathered& gathered);
  rpc::Part SendAlone(ReadStream& stream, v1::ReadResponse& header, Range& range);
  rpc::Part SendLatents(ReadStream& stream, Range& range);
  absl::Status Ended(const absl::Status& status);  // Counts it.
  absl::Status DoDraw(const v1::DrawRequest& request, v1::DrawResponse& response);
  absl::Status DoAdvance(const v1::AdvanceRequest& request);
  absl::Status DoVerify(const v1::VerifyRequest& request, v1::VerifyResponse& response);
  absl::Status DoList(const v1::ListRequest& request, v1::ListResponse& response);

  const Options options_;
  ReplayStore& store_;
  ReplayMetrics& metrics_;
  const Clock& clock_;
  ByteBudget budget_;
  rpc::StreamRunner runner_;  // Last: it waits for the streams.
};

}  // namespace oxbow::buffer
