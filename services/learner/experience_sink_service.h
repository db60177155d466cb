// ExperienceSink over gRPC: puts a group's chunks together within a byte budget and submits it.
#pragma once

#include "oxbow/v1/experience_sink.grpc.pb.h"
#include "services/learner/byte_budget.h"
#include "services/learner/coordinator.h"

namespace oxbow::learner {

class ExperienceSinkService final : public v1::ExperienceSink::Service {
 public:
  // `budget` limits latent bytes that are granted as credit, in assembly, or wait for the learner.
  ExperienceSinkService(Coordinator& coordinator, ByteBudget& budget, GroupRules rules,
                        LearnerMetrics& metrics);

  grpc::Status Insert(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::InsertResponse, v1::InsertRequest>* stream) override;

 private:
  Coordinator& coordinator_;
  ByteBudget& budget_;
  const GroupRules rules_;
  LearnerMetrics& metrics_;
};

}  // namespace oxbow::learner
