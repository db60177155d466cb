// SPDX-License-Identifier: Apache-2.0
// The metrics of this process: one registry, served as text on /metrics.
//
// Domain code never sees a metric name: each service has a class of verbs in <x>_metrics.h, built
// from this registry and the names in metrics/exported_metrics.h.
#pragma once

#include <prometheus/registry.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "telemetry/page_server.h"
#include "telemetry/process_metrics.h"

namespace oxbow::telemetry {

class Metrics {
 public:
  // Serves on `listen` ("127.0.0.1:0", "[::1]:0"). Adds oxbow_build_info. kUnavailable if it cannot
  // be bound.
  static absl::StatusOr<std::unique_ptr<Metrics>> Serve(const std::string& listen);
  ~Metrics();

  prometheus::Registry& registry() { return registry_; }
  // Adds the free and total size of the disk that holds `directory`; see process_metrics.h.
  void WatchDisk(const std::string& use, const std::filesystem::path& directory) {
    process_.WatchDisk(use, directory);
  }
  // Called before each scrape, for values that are looked up; null: nothing is. When this returns,
  // the function before is not running any more.
  void BeforeScrape(std::function<void()> call) ABSL_LOCKS_EXCLUDED(mutex_);
  const std::string& endpoint() const { return endpoint_; }

 private:
  Metrics();
  std::string Text() const;

  prometheus::Registry registry_;
  ProcessMetrics process_;
  mutable absl::Mutex mutex_;
  std::function<void()> before_scrape_ ABSL_GUARDED_BY(mutex_);
  std::string endpoint_;
  std::unique_ptr<PageServer> server_;  // Ends before what it serves.
};

// The text that /metrics would serve, for tests.
std::string ScrapeText(const prometheus::Registry& registry);

}  // namespace oxbow::telemetry
