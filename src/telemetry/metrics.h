// The process's metrics: one registry, served as text on /metrics.
//
// Domain code never sees a metric name: each service has a class of verbs in <x>_metrics.h, built
// from this registry, with names, units and help in one .cc file.
#pragma once

#include <prometheus/registry.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace prometheus {
class Exposer;
}  // namespace prometheus

namespace oxbow::telemetry {

class Metrics {
 public:
  // Serves on `listen` ("127.0.0.1:0"). Adds oxbow_build_info. kUnavailable if it cannot be bound.
  static absl::StatusOr<std::unique_ptr<Metrics>> Serve(const std::string& listen);
  ~Metrics();

  prometheus::Registry& registry() { return *registry_; }
  const std::string& endpoint() const { return endpoint_; }

 private:
  Metrics();
  std::shared_ptr<prometheus::Registry> registry_;  // Shared: the exposer holds a weak_ptr to it.
  std::unique_ptr<prometheus::Exposer> exposer_;
  std::string endpoint_;
  int port_ = 0;
};

// What /metrics would print, for tests.
std::string ScrapeText(const prometheus::Registry& registry);

}  // namespace oxbow::telemetry
