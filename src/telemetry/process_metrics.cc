// SPDX-License-Identifier: Apache-2.0
#include "telemetry/process_metrics.h"

#include <prometheus/metric_family.h>
#include <unistd.h>

#include <fstream>
#include <optional>
#include <sstream>
#include <system_error>

#include "metrics/exported_metrics.h"
#include "telemetry/refused_calls.h"

namespace oxbow::telemetry {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

MetricFamily Empty(const exported::Metric& row, MetricType type) {
  MetricFamily family;
  family.name = row.name;
  family.help = row.help;
  family.type = type;
  return family;
}

MetricFamily WithoutLabels(const exported::Counter& row, double value) {
  MetricFamily family = Empty(row, MetricType::Counter);
  family.metric.emplace_back().counter.value = value;
  return family;
}

MetricFamily WithoutLabels(const exported::Gauge& row, double value) {
  MetricFamily family = Empty(row, MetricType::Gauge);
  family.metric.emplace_back().gauge.value = value;
  return family;
}

// The fields of /proc/self/stat from the third on (state, ppid, ...): the second, the program's
// name, may hold spaces. Empty if the file cannot be read.
std::vector<std::string> StatFields() {
  std::ifstream in("/proc/self/stat");
  std::string line;
  std::getline(in, line);
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream rest(line.substr(name_end + 1));
  std::vector<std::string> fields;
  for (std::string field; rest >> field;) fields.push_back(field);
  return fields;
}

// Unix time at which the machine started.
std::optional<double> BootTime() {
  std::ifstream in("/proc/stat");
  for (std::string word; in >> word;) {
    double seconds = 0;
    if (word == "btime" && in >> seconds) return seconds;
  }
  return std::nullopt;
}

// proc(5): utime, stime and starttime in clock ticks, rss in pages.
void AppendProcess(std::vector<MetricFamily>& families) {
  const std::vector<std::string> fields = StatFields();
  if (fields.size() < 22) return;
  const auto number = [&](size_t field) { return std::stod(fields[field - 3]); };
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  families.push_back(WithoutLabels(exported::kProcessResidentMemoryBytes,
                                   number(24) * static_cast<double>(::sysconf(_SC_PAGESIZE))));
  families.push_back(
      WithoutLabels(exported::kProcessCpuSecondsTotal, (number(14) + number(15)) / ticks));
  if (const std::optional<double> boot = BootTime()) {
    families.push_back(
        WithoutLabels(exported::kProcessStartTimeSeconds, *boot + number(22) / ticks));
  }
}

void AppendDisks(const std::map<std::string, std::filesystem::path>& disks,
                 std::vector<MetricFamily>& families) {
  MetricFamily available = Empty(exported::kDiskAvailableBytes, MetricType::Gauge);
  MetricFamily size = Empty(exported::kDiskSizeBytes, MetricType::Gauge);
  for (const auto& [use, directory] : disks) {
    std::error_code error;
    const std::filesystem::space_info space = std::filesystem::space(directory, error);
    if (error) continue;
    ClientMetric metric;
    metric.label = {{"use", use}};
    metric.gauge.value = static_cast<double>(space.available);
    available.metric.push_back(metric);
    metric.gauge.value = static_cast<double>(space.capacity);
    size.metric.push_back(metric);
  }
  if (available.metric.empty()) return;
  families.push_back(available);
  families.push_back(size);
}

void AppendRefusedCalls(std::vector<MetricFamily>& families) {
  const RefusedCalls::ByMethodAndReason counts = RefusedCalls::This().counts();
  if (counts.empty()) return;
  MetricFamily refused = Empty(exported::kRpcRefusedTotal, MetricType::Counter);
  for (const auto& [what, count] : counts) {
    ClientMetric metric;
    metric.label = {{"method", what.first}, {"reason", what.second}};
    metric.counter.value = static_cast<double>(count);
    refused.metric.push_back(metric);
  }
  families.push_back(refused);
}

}  // namespace

void ProcessMetrics::WatchDisk(const std::string& use, const std::filesystem::path& directory) {
  absl::MutexLock lock(&mutex_);
  disks_[use] = directory;
}

std::vector<MetricFamily> ProcessMetrics::Collect() const {
  std::vector<MetricFamily> families;
  AppendProcess(families);
  AppendRefusedCalls(families);
  absl::MutexLock lock(&mutex_);
  AppendDisks(disks_, families);
  return families;
}

}  // namespace oxbow::telemetry
