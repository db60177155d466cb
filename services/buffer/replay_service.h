// ReplayBuffer over gRPC: converts, calls the store, converts back, counts. Decides nothing.
#pragma once

#include "base/clock.h"
#include "oxbow/v1/replay_buffer.grpc.pb.h"
#include "services/buffer/offer_assembly.h"
#include "services/buffer/replay_client.h"
#include "services/buffer/replay_metrics.h"
#include "services/buffer/replay_store.h"

namespace oxbow::buffer {

class ReplayService final : public v1::ReplayBuffer::Service {
 public:
  struct Options {
    uint64_t entry_bytes_max = kEntryBytesMax;
    uint64_t offer_bytes_max = kOfferBytesMax;  // All Offer calls together.
  };

  // `store`, `metrics` and `clock` outlive the service.
  ReplayService(Options options, ReplayStore& store, ReplayMetrics& metrics, const Clock& clock);

  grpc::Status Offer(grpc::ServerContext* context, grpc::ServerReader<v1::OfferRequest>* reader,
                     v1::OfferResponse* response) override;
  grpc::Status Draw(grpc::ServerContext* context, const v1::DrawRequest* request,
                    v1::DrawResponse* response) override;
  grpc::Status Read(grpc::ServerContext* context, const v1::ReadRequest* request,
                    grpc::ServerWriter<v1::ReadResponse>* writer) override;
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

 private:
  grpc::Status Ended(const absl::Status& status);
  absl::Status DoOffer(grpc::ServerContext& context, grpc::ServerReader<v1::OfferRequest>& reader,
                       v1::OfferResponse& response);
  absl::Status DoDraw(const v1::DrawRequest& request, v1::DrawResponse& response);
  absl::Status DoRead(const v1::ReadRequest& request, grpc::ServerWriter<v1::ReadResponse>& writer);
  absl::Status DoAdvance(const v1::AdvanceRequest& request);
  absl::Status DoVerify(const v1::VerifyRequest& request, v1::VerifyResponse& response);
  absl::Status DoList(const v1::ListRequest& request, v1::ListResponse& response);

  const Options options_;
  ReplayStore& store_;
  ReplayMetrics& metrics_;
  const Clock& clock_;
  ByteBudget budget_;
};

}  // namespace oxbow::buffer
