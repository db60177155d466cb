// SPDX-License-Identifier: Apache-2.0
// ExperienceSink over gRPC: assembles the chunks of a group within a byte budget and submits the
// group.
#pragma once

#include "base/byte_budget.h"
#include "oxbow/v1/experience_sink.grpc.pb.h"
#include "rpc/server.h"
#include "rpc/stream.h"
#include "services/learner/coordinator/group_assembler.h"
#include "services/learner/coordinator/group_check.h"
#include "services/learner/record/learner_metrics.h"

namespace oxbow::learner {

class ExperienceSinkService final : public v1::ExperienceSink::Service, public rpc::HasStreams {
 public:
  using InsertStream = rpc::Stream<v1::InsertRequest, v1::InsertResponse>;

  // `budget` limits the latent bytes that are granted as credit, being assembled, or waiting for
  // the learner; it has room for one group at least.
  ExperienceSinkService(ResultReceiver& receiver, ByteBudget& budget, GroupRules rules,
                        LearnerMetrics& metrics, rpc::StreamRunner::Options streams = {});

  rpc::StreamRunner& streams() override { return runner_; }

  // Serves one call. Public for callers without a network.
  rpc::Handler Take(InsertStream& stream);

 private:
  ResultReceiver& receiver_;
  ByteBudget& budget_;
  const GroupRules rules_;
  LearnerMetrics& metrics_;
  rpc::StreamRunner runner_;  // Last: it waits for the streams.
};

}  // namespace oxbow::learner
