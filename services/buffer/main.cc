// SPDX-License-Identifier: Apache-2.0
// replay_buffer: keeps the best trajectory of each prompt on disk and serves it over gRPC until
// SIGTERM.
#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "base/clock.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/memory_limits.h"
#include "base/status_macros.h"
#include "config/run_config.h"
#include "rpc/server.h"
#include "rpc/service_main.h"
#include "rpc/stop_signal.h"
#include "services/buffer/replay_service.h"
#include "services/buffer/store_config.h"
#include "telemetry/metrics.h"

namespace oxbow::buffer {
namespace {

struct Flags {
  rpc::ServiceFlags service;
  std::string data;
  std::string config;
  std::optional<uint64_t> capacity;
  ReplayService::Options limits{.offer_bytes_max = LimitOf(kOffersShare)};
};

void AddFlags(CLI::App& app, Flags& flags) {
  app.add_option("--data", flags.data, "directory of the entries; made if it is not there")
      ->required();
  app.add_option("--config", flags.config, "resolved run config; its replay section counts");
  app.add_option("--capacity", flags.capacity, "entries; wins over replay.capacity")
      ->check(CLI::PositiveNumber);
  rpc::AddListenFlag(app, flags.service, "ReplayBuffer service");
  app.add_option("--entry-bytes-max", flags.limits.entry_bytes_max, "bytes of one entry");
  app.add_option("--offer-bytes-max", flags.limits.offer_bytes_max,
                 "bytes of all Offer calls at a time; default: a share of the memory");
}

absl::StatusOr<ReplayStore::Options> StoreOptions(const Flags& flags) {
  ReplayStore::Options options;
  options.directory = flags.data;
  if (!flags.config.empty()) {
    OXBOW_ASSIGN_OR_RETURN(const v1::RunConfig config, config::LoadResolved(flags.config));
    options.decay = DecayOf(config.replay());
    options.tables = TablesOf(config);
  }
  if (flags.capacity.has_value()) options.tables[0].capacity = *flags.capacity;
  return options;
}

// Serves until a stop signal. Declared in the order of their use, so that the store closes after
// the server and the exposer goes last.
absl::Status Serve(const Flags& flags) {
  rpc::StopSignal stop(kExitOk);
  OXBOW_ASSIGN_OR_RETURN(ReplayStore::Options options, StoreOptions(flags));
  OXBOW_ASSIGN_OR_RETURN(const std::unique_ptr<telemetry::Metrics> metrics,
                         telemetry::Metrics::Serve(flags.service.metrics_listen));
  OXBOW_ASSIGN_OR_RETURN(const std::unique_ptr<ReplayStore> store,
                         ReplayStore::Open(std::move(options)));
  metrics->WatchDisk("replay", flags.data);
  const StoreInfo info = store->Info();
  OXBOW_LOG(Info) << "replay store opened" << Field("entries", info.entries)
                  << Field("capacity", info.capacity) << Field("step", info.step);
  ReplayMetrics verbs(metrics->registry());
  metrics->BeforeScrape([&] { verbs.Holds(store->Info()); });
  const absl::Cleanup unwatched = [&] { metrics->BeforeScrape(nullptr); };
  ReplayService service(flags.limits, *store, verbs, Clock::Steady());
  OXBOW_ASSIGN_OR_RETURN(const std::unique_ptr<rpc::Server> server,
                         rpc::Server::Start({.listen = flags.service.listen}, {&service}));
  LogMemoryLimits({{"offers", flags.limits.offer_bytes_max}, {"grpc", LimitOf(kGrpcShare)}});
  stop.Serves();
  rpc::AnnounceReady("replay_buffer", server->endpoint(), metrics->endpoint());
  stop.Wait();
  server->Shutdown(absl::Seconds(10));
  return absl::OkStatus();
}

}  // namespace
}  // namespace oxbow::buffer

int main(int argc, char** argv) {
  oxbow::KeepFreedMemory(oxbow::kMebibyte * 64);
  oxbow::buffer::Flags flags;
  return oxbow::rpc::RunService(
      "replay_buffer", "Keeps the best trajectory of each prompt on disk.", argc, argv,
      flags.service, [&](CLI::App& app) { oxbow::buffer::AddFlags(app, flags); },
      [&] { return oxbow::buffer::Serve(flags); });
}
