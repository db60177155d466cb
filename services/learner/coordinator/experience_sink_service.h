// ExperienceSink over gRPC: assembles the chunks of a group within a byte budget and submits the
// group.
#pragma once

#include "oxbow/v1/experience_sink.grpc.pb.h"
#include "services/learner/coordinator/byte_budget.h"
#include "services/learner/coordinator/group_check.h"
#include "services/learner/coordinator/result_receiver.h"
#include "services/learner/learner_metrics.h"

namespace oxbow::learner {

class ExperienceSinkService final : public v1::ExperienceSink::Service {
 public:
  // `budget` limits the latent bytes that are granted as credit, being assembled, or waiting for
  // the learner.
  ExperienceSinkService(ResultReceiver& receiver, ByteBudget& budget, GroupRules rules,
                        LearnerMetrics& metrics);

  grpc::Status Insert(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::InsertResponse, v1::InsertRequest>* stream) override;

 private:
  ResultReceiver& receiver_;
  ByteBudget& budget_;
  const GroupRules rules_;
  LearnerMetrics& metrics_;
};

}  // namespace oxbow::learner
