// SPDX-License-Identifier: Apache-2.0
// The metrics of this process: one registry, served as text on /metrics.
//
// Domain code never sees a metric name: each service has a class of verbs in <x>_metrics.h, built
// from this registry and the names in metrics/exported_metrics.h.
#pragma once

#include <prometheus/collectable.h>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/descriptor.h"
#include "base/listening_sockets.h"
#include "metrics/exported_metrics.h"

namespace oxbow::telemetry {

// Serves one page of text over HTTP: GET PATH, one request a connection.
//
// One thread waits for all connections at once, so a caller that says nothing, or reads nothing,
// delays no other. Each connection ends after `time_max`; if too many are open, the oldest ends.
class PageServer {
 public:
  struct Options {
    std::string path = "/metrics";
    std::string content_type = "text/plain; version=0.0.4; charset=utf-8";
    absl::Duration time_max = absl::Seconds(10);
    size_t connections_max = 64;
  };

  // `page` is called once a request, in the server's thread. kUnavailable if `address` cannot be
  // bound (base/listening_sockets.h).
  static absl::StatusOr<std::unique_ptr<PageServer>> Start(const std::string& address,
                                                           const Options& options,
                                                           std::function<std::string()> page);
  ~PageServer();

  int port() const { return sockets_.port; }

 private:
  struct Connection {
    Descriptor socket;
    absl::Duration end;
    std::string request;
    std::string answer;  // The rest, still to be sent.
    bool answered = false;
  };

  PageServer(ListeningSockets sockets, const Options& options, std::function<std::string()> page);
  void Loop();
  bool Accept(int socket);
  bool Serve(Connection& connection) const;
  std::string AnswerTo(const std::string& request) const;

  const Options options_;
  const std::function<std::string()> page_;
  const ListeningSockets sockets_;
  const Descriptor ended_;             // An eventfd that wakes the thread.
  std::list<Connection> connections_;  // The thread's; oldest first.
  std::thread thread_;
};

// Makes a registry's metrics from the rows of metrics/exported_metrics.h.
//
// Metric: one without labels, or with these. Family: all of one name; Add({{label, value}}) on it
// makes one of them. A name that the registry has already stays as it is. References live as long
// as the registry.
using Buckets = prometheus::Histogram::BucketBoundaries;

inline auto BuilderOf(const exported::Counter&) { return prometheus::BuildCounter(); }
inline auto BuilderOf(const exported::Gauge&) { return prometheus::BuildGauge(); }
inline auto BuilderOf(const exported::Histogram&) { return prometheus::BuildHistogram(); }

template <typename Row>
auto& Family(prometheus::Registry& registry, const Row& row) {
  return BuilderOf(row).Name(row.name).Help(row.help).Register(registry);
}

template <typename Row>
auto& Metric(prometheus::Registry& registry, const Row& row,
             const prometheus::Labels& labels = {}) {
  return Family(registry, row).Add(labels);
}
inline auto& Metric(prometheus::Registry& registry, const exported::Histogram& row,
                    const Buckets& buckets) {
  return Family(registry, row).Add({}, buckets);
}

// One counter for each value of a label, all made at once.
class Counters {
 public:
  Counters(prometheus::Registry& registry, const exported::Counter& row, const char* label,
           const std::vector<std::string>& values) {
    for (const std::string& value : values) {
      children_[value] = &Metric(registry, row, {{label, value}});
    }
  }

  // Another value is not counted.
  void Add(const std::string& value, double by = 1) const {
    if (const auto found = children_.find(value); found != children_.end()) {
      found->second->Increment(by);
    }
  }

 private:
  std::map<std::string, prometheus::Counter*> children_;
};

// How many calls this process refused since it started, by method and reason. Thread-safe.
class RefusedCalls {
 public:
  using ByMethodAndReason = std::map<std::pair<std::string, std::string>, uint64_t>;

  static RefusedCalls& This();

  // `method` and `reason` come from small sets: each pair is kept for ever.
  void Add(const std::string& method, const std::string& reason) ABSL_LOCKS_EXCLUDED(mutex_);
  ByMethodAndReason counts() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  mutable absl::Mutex mutex_;
  ByMethodAndReason counts_ ABSL_GUARDED_BY(mutex_);
};

// Metrics that every process has, whatever it serves. They are read at the moment of each scrape:
//
//   process_resident_memory_bytes, process_cpu_seconds_total, process_start_time_seconds
//   oxbow_rpc_refused_total{method,reason}, once a call was refused
//   oxbow_disk_available_bytes{use}, oxbow_disk_size_bytes{use}   for each watched directory
//
// The first three have the names that every Prometheus client gives them. A value that cannot be
// read is left out. Thread-safe.
class ProcessMetrics : public prometheus::Collectable {
 public:
  // Measures the file system that holds `directory`; `use` says what is kept there ("replay").
  void WatchDisk(const std::string& use, const std::filesystem::path& directory)
      ABSL_LOCKS_EXCLUDED(mutex_);

  std::vector<prometheus::MetricFamily> Collect() const override ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  mutable absl::Mutex mutex_;
  std::map<std::string, std::filesystem::path> disks_ ABSL_GUARDED_BY(mutex_);
};

class Metrics {
 public:
  // Serves on `listen` ("127.0.0.1:0", "[::1]:0"). Adds oxbow_build_info. kUnavailable if it cannot
  // be bound.
  static absl::StatusOr<std::unique_ptr<Metrics>> Serve(const std::string& listen);
  ~Metrics();

  prometheus::Registry& registry() { return registry_; }
  // Adds the free and total size of the disk that holds `directory`.
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
