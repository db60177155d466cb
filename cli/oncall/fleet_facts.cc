// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "cli/oncall/fleet_checks.h"
#include "cli/oncall/health.h"
#include "cli/oncall/metrics_page.h"
#include "cli/run/status.h"
#include "config/run_config.h"
#include "metrics/exported_metrics.h"
#include "oxbow/v1/replay_buffer.grpc.pb.h"
#include "oxbow/v1/reward.grpc.pb.h"
#include "rpc/channel.h"
#include "rpc/status.h"
#include "run/endpoints_file.h"

namespace oxbow::cli {
namespace {

double UnixNow() { return absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()); }

class Asking {
 public:
  explicit Asking(absl::Duration timeout) : timeout_(timeout) {}

  // Ask the learner first: its answer in facts.status has the addresses of the others.
  void Learner(const std::string& endpoint) {
    ServiceFacts& service = Health("learner", endpoint);
    if (service.state == ServiceFacts::State::kSilent) return;
    const double before = UnixNow();
    auto status = AskStatus(endpoint, timeout_);
    if (IsRefusal(status.status())) return Refused(service, status.status());
    if (!status.ok()) return;
    SetClock(service, before, status->unix_time());
    facts_.status = *std::move(status);
  }

  void Buffer(const std::string& name, const std::string& endpoint) {
    ServiceFacts& service = Health(name, endpoint);
    if (service.state == ServiceFacts::State::kSilent) return;
    const auto stub = v1::ReplayBuffer::NewStub(rpc::Connect(endpoint));
    v1::InfoResponse info;
    const double before = UnixNow();
    const absl::Status answer =
        rpc::FromGrpc(stub->Info(rpc::ContextWithDeadline(timeout_).get(), {}, &info));
    if (IsRefusal(answer)) return Refused(service, answer);
    if (!answer.ok()) return;
    SetClock(service, before, info.unix_time());
    facts_.buffers.push_back(std::move(info));
  }

  void Reward(const std::string& name, const std::string& endpoint, const std::string& metrics) {
    ServiceFacts& service = Health(name, endpoint);
    if (endpoint.empty()) return;
    const auto stub = v1::Reward::NewStub(rpc::Connect(endpoint));
    v1::DescribeResponse described;
    const double before = UnixNow();
    const grpc::Status answer =
        stub->Describe(rpc::ContextWithDeadline(timeout_).get(), {}, &described);
    if (answer.ok()) {
      // Other people's servers need not have the health service.
      if (service.state == ServiceFacts::State::kSilent) {
        service.state = ServiceFacts::State::kServing;
      }
      SetClock(service, before, described.unix_time());
    } else {
      if (const absl::Status why = rpc::FromGrpc(answer); IsRefusal(why)) {
        return Refused(service, why);
      }
      service.state = ServiceFacts::State::kSilent;
      service.why = absl::StrCat("Describe: ", answer.error_message());
      return;
    }
    const auto page = FetchMetrics(metrics, timeout_);
    if (!page.ok()) return;
    const std::string family = exported::kRewardItemsTotal.name;
    facts_.rewards.push_back({name, SumOfSeries(*page, family, "outcome=\"scored\""),
                              SumOfSeries(*page, family, "outcome=\"failed\"") +
                                  SumOfSeries(*page, family, "outcome=\"invalid\"")});
  }

  FleetFacts Take() && { return std::move(facts_); }
  FleetFacts& facts() { return facts_; }

 private:
  ServiceFacts& Health(const std::string& name, const std::string& endpoint) {
    ServiceFacts service{.name = name, .endpoint = endpoint, .why = {}};
    if (endpoint.empty()) {  // A child of the supervisor has none until it is ready.
      service.why = "it starts, and has not said yet where it listens";
      facts_.services.push_back(std::move(service));
      return facts_.services.back();
    }
    const absl::Time before = absl::Now();
    const auto serving = IsServing(endpoint, timeout_);
    service.round_trip_s = absl::ToDoubleSeconds(absl::Now() - before);
    if (serving.ok()) {
      service.state = *serving ? ServiceFacts::State::kServing : ServiceFacts::State::kNotServing;
    } else {
      service.why = std::string(serving.status().message());
    }
    facts_.services.push_back(std::move(service));
    return facts_.services.back();
  }

  static void Refused(ServiceFacts& service, const absl::Status& why) {
    service.state = ServiceFacts::State::kRefused;
    service.why = std::string(why.message());
  }

  // The other side read its clock at some moment of the call; the middle is the best estimate.
  static void SetClock(ServiceFacts& service, double before, double theirs) {
    if (theirs == 0) return;  // From an older binary.
    const double after = UnixNow();
    service.clock_offset_s = theirs - (before + after) / 2;
    service.round_trip_s = after - before;
  }

  const absl::Duration timeout_;
  FleetFacts facts_;
};

std::string Numbered(const std::string& name, int i, int count) {
  return count == 1 ? name : absl::StrCat(name, "-", i);
}

}  // namespace

FleetFacts AskFleet(const std::string& learner, absl::Duration timeout) {
  Asking asking(timeout);
  asking.Learner(learner);
  if (!asking.facts().status.has_value()) return std::move(asking).Take();
  const v1::StatusResponse status = *asking.facts().status;
  for (int i = 0; i < status.buffer_endpoints_size(); ++i) {
    asking.Buffer(Numbered("replay_buffer", i, status.buffer_endpoints_size()),
                  status.buffer_endpoints(i));
  }
  for (int i = 0; i < status.reward_endpoints_size(); ++i) {
    asking.Reward(Numbered("reward_server", i, status.reward_endpoints_size()),
                  status.reward_endpoints(i), "");
  }
  return std::move(asking).Take();
}

absl::StatusOr<FleetFacts> AskFleetOfRun(const std::string& run_dir, absl::Duration timeout) {
  OXBOW_ASSIGN_OR_RETURN(const std::vector<run::ServiceEndpoint> services,
                         run::ReadEndpoints(run_dir));
  Asking asking(timeout);
  for (const run::ServiceEndpoint& service : services) {
    if (service.name == "learner") asking.Learner(service.grpc);
    if (!service.trouble.empty()) asking.facts().down[service.name] = service.trouble;
  }
  for (const run::ServiceEndpoint& service : services) {
    if (absl::StartsWith(service.name, "replay_buffer")) {
      asking.Buffer(service.name, service.grpc);
    } else if (absl::StartsWith(service.name, "reward_server")) {
      asking.Reward(service.name, service.grpc, service.metrics);
    }
  }
  // Servers of reward.endpoints are no children of the run.
  if (const auto& status = asking.facts().status; status.has_value()) {
    const v1::StatusResponse known = *status;
    for (const std::string& endpoint : known.reward_endpoints()) {
      const bool child = std::any_of(
          services.begin(), services.end(),
          [&](const run::ServiceEndpoint& service) { return service.grpc == endpoint; });
      if (!child) asking.Reward("reward", endpoint, "");
    }
  }
  const auto config = config::LoadResolved(std::filesystem::path(run_dir) / "config.resolved.yaml");
  if (config.ok()) {
    asking.facts().staleness_max = config->off_policy().staleness_max();
    const v1::ModelConfig& model = config->model();
    const bool merges =
        model.trained() == v1::TRAINED_PART_LORA && model.lora().merge_for_rollouts();
    if (model.device() == "cpu" && !merges) asking.facts().ratio_tolerance = 0;
  }
  return std::move(asking).Take();
}

}  // namespace oxbow::cli
