#include "cli/status.h"

#include <iostream>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/exit_code.h"
#include "base/status_macros.h"
#include "cli/endpoints_file.h"
#include "cli/progress_line.h"
#include "oxbow/v1/coordinator.grpc.pb.h"
#include "rpc/channel.h"
#include "rpc/status.h"

namespace oxbow::cli {
namespace {

absl::StatusOr<std::string> LearnerOf(const std::string& run_dir) {
  OXBOW_ASSIGN_OR_RETURN(const std::vector<ServiceEndpoint> services, ReadEndpoints(run_dir));
  for (const ServiceEndpoint& service : services) {
    if (service.name == "learner") return service.grpc;
  }
  return absl::NotFoundError(absl::StrCat("the run has no learner yet: ", run_dir));
}

absl::Status Show(const std::string& endpoint, const std::string& run_dir, absl::Duration timeout) {
  std::string learner = endpoint;
  if (learner.empty()) {
    OXBOW_ASSIGN_OR_RETURN(learner, LearnerOf(run_dir));
  }
  const auto status = AskStatus(learner, timeout);
  if (!status.ok()) {
    return Annotate(status.status(),
                    absl::StrCat("no learner answers at ", learner, " (has the run ended?)"));
  }
  std::cout << StatusText(*status);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::StatusResponse> AskStatus(const std::string& endpoint, absl::Duration timeout) {
  const auto stub = v1::Coordinator::NewStub(rpc::Connect(endpoint));
  v1::StatusResponse response;
  const grpc::Status status =
      stub->Status(rpc::ContextWithDeadline(timeout).get(), v1::StatusRequest(), &response);
  if (!status.ok()) return rpc::FromGrpc(status);
  return response;
}

std::string StatusText(const v1::StatusResponse& status) {
  // The learner's own measure of its last step: one question gives no rate.
  const double images = Metric(status, "train/samples").value_or(0);
  std::optional<double> steps_per_second;
  if (const auto rate = Metric(status, "throughput/samples_per_s"); rate && images > 0) {
    steps_per_second = *rate / images;
  }
  const double seconds = status.wall_seconds();
  std::string text = absl::StrCat("run        ", status.run_name(), "  (epoch ", status.epoch(),
                                  ", ", ClockText(seconds), ")\n");
  absl::StrAppend(&text, "progress   ",
                  ProgressLine(status, steps_per_second, static_cast<uint64_t>(images)), "\n");
  absl::StrAppend(&text, "doing      ", status.phase(), "\n");
  absl::StrAppend(&text, "weights    version ", status.policy_version(), ", published ",
                  status.published_version(), "\n");
  absl::StrAppend(&text, "groups     ", status.groups_running(), " running, ",
                  status.groups_ready(), " ready\n");
  if (const std::string limit = Bottleneck(status); !limit.empty()) {
    absl::StrAppend(&text, "limit: ", limit, "\n");
  }
  if (status.leases_expired() + status.leases_speculated() + status.groups_discarded() > 0) {
    absl::StrAppend(&text, "leases     ", status.leases_expired(), " expired, ",
                    status.leases_speculated(), " of stragglers given twice; ",
                    status.groups_discarded(), " results discarded\n");
  }
  for (const v1::RankStatus& rank : status.ranks()) {
    absl::StrAppend(&text,
                    absl::StrFormat("rank %-5d seen %.1f s ago, metrics at %s\n", rank.rank(),
                                    rank.seconds_since_seen(), rank.metrics_endpoint()));
  }
  absl::StrAppend(&text, absl::StrFormat("%-28s %8s %7s %7s %10s\n", "worker", "version", "leases",
                                         "groups", "seen"));
  for (const v1::WorkerStatus& worker : status.workers()) {
    absl::StrAppend(&text, absl::StrFormat("%-28s %8d %7d %7d %8.1f s\n", worker.worker_id(),
                                           worker.policy_version(), worker.leases(),
                                           worker.groups_done(), worker.seconds_since_seen()));
  }
  return text;
}

void AddStatus(CLI::App& app, int& exit_code) {
  struct Flags {
    std::string endpoint;
    std::string run_dir;
  };
  const auto flags = std::make_shared<Flags>();  // Lives as long as the callback below.
  CLI::App* command = app.add_subcommand("status", "Show what a live run is doing");
  command->footer("Example: oxbow status --run runs/digits");
  auto* endpoint = command->add_option("--addr", flags->endpoint, "host:port of the learner");
  command->add_option("--run", flags->run_dir, "directory of the run")->excludes(endpoint);
  command->callback([flags, &exit_code] {
    const absl::Status status =
        flags->endpoint.empty() && flags->run_dir.empty()
            ? absl::InvalidArgumentError("name a run: --run runs/NAME or --addr HOST:PORT")
            : Show(flags->endpoint, flags->run_dir, absl::Seconds(5));
    if (!status.ok()) std::cerr << "oxbow status: " << status.message() << "\n";
    exit_code = ExitCodeOf(status);
  });
}

}  // namespace oxbow::cli
