// SPDX-License-Identifier: Apache-2.0
// Metrics that every process has, whatever it serves. They are read at the moment of each scrape:
//
//   process_resident_memory_bytes, process_cpu_seconds_total, process_start_time_seconds
//   oxbow_rpc_refused_total{method,reason}, once a call was refused
//   oxbow_disk_available_bytes{use}, oxbow_disk_size_bytes{use}   for each watched directory
//
// The first three have the names that every Prometheus client gives them. A value that cannot be
// read is left out.
#pragma once

#include <prometheus/collectable.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace oxbow::telemetry {

// Thread-safe.
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

}  // namespace oxbow::telemetry
