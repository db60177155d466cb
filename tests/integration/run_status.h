// SPDX-License-Identifier: Apache-2.0
// Asks the learner of a run that a test has started.
#pragma once

#include <fstream>
#include <string>

#include "oxbow/v1/coordinator.grpc.pb.h"
#include "rpc/channel.h"
#include "tests/integration/training_run.h"

namespace oxbow::testing {

// host:port of the learner's "grpc" or "metrics".
inline std::string AddressOfLearner(const TrainingRun& run, const std::string& what) {
  std::ifstream in(run.directory() / "endpoints.json");
  const nlohmann::json endpoints = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (!endpoints.is_object()) return "";
  for (const nlohmann::json& service : endpoints["services"]) {
    if (service["name"] == "learner") return service[what];
  }
  return "";
}

// As the learner says, at once; empty while it does not answer.
inline v1::StatusResponse StatusOf(const TrainingRun& run) {
  v1::StatusResponse status;
  const std::string address = AddressOfLearner(run, "grpc");
  if (address.empty()) return status;
  const auto context = rpc::ContextWithDeadline(absl::Seconds(10));
  const auto stub = v1::Coordinator::NewStub(rpc::Connect(address));
  (void)stub->Status(context.get(), {}, &status);
  return status;
}

inline bool Evaluates(const TrainingRun& run) { return StatusOf(run).phase() == "evaluating"; }

}  // namespace oxbow::testing
