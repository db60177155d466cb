// SPDX-License-Identifier: Apache-2.0
#include "telemetry/metrics.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>
#include <unistd.h>

#include <fstream>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/build_version.h"
#include "metrics/exported_metrics.h"

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

void Add(double value, const prometheus::Labels& labels, MetricFamily& family) {
  ClientMetric& metric = family.metric.emplace_back();
  for (const auto& [name, label] : labels) metric.label.push_back({name, label});
  (family.type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
}

MetricFamily WithoutLabels(const exported::Metric& row, MetricType type, double value) {
  MetricFamily family = Empty(row, type);
  Add(value, {}, family);
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
  families.push_back(WithoutLabels(exported::kProcessResidentMemoryBytes, MetricType::Gauge,
                                   number(24) * static_cast<double>(::sysconf(_SC_PAGESIZE))));
  families.push_back(WithoutLabels(exported::kProcessCpuSecondsTotal, MetricType::Counter,
                                   (number(14) + number(15)) / ticks));
  if (const std::optional<double> boot = BootTime()) {
    families.push_back(WithoutLabels(exported::kProcessStartTimeSeconds, MetricType::Gauge,
                                     *boot + number(22) / ticks));
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
    Add(static_cast<double>(space.available), {{"use", use}}, available);
    Add(static_cast<double>(space.capacity), {{"use", use}}, size);
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
    Add(static_cast<double>(count), {{"method", what.first}, {"reason", what.second}}, refused);
  }
  families.push_back(refused);
}

}  // namespace

prometheus::Family<prometheus::Counter>& Family(prometheus::Registry& registry,
                                                const exported::Counter& row) {
  return prometheus::BuildCounter().Name(row.name).Help(row.help).Register(registry);
}

prometheus::Family<prometheus::Gauge>& Family(prometheus::Registry& registry,
                                              const exported::Gauge& row) {
  return prometheus::BuildGauge().Name(row.name).Help(row.help).Register(registry);
}

prometheus::Family<prometheus::Histogram>& Family(prometheus::Registry& registry,
                                                  const exported::Histogram& row) {
  return prometheus::BuildHistogram().Name(row.name).Help(row.help).Register(registry);
}

prometheus::Counter& Metric(prometheus::Registry& registry, const exported::Counter& row,
                            const prometheus::Labels& labels) {
  return Family(registry, row).Add(labels);
}

prometheus::Gauge& Metric(prometheus::Registry& registry, const exported::Gauge& row,
                          const prometheus::Labels& labels) {
  return Family(registry, row).Add(labels);
}

prometheus::Histogram& Metric(prometheus::Registry& registry, const exported::Histogram& row,
                              const Buckets& buckets) {
  return Family(registry, row).Add({}, buckets);
}

RefusedCalls& RefusedCalls::This() {
  static RefusedCalls& counts = *new RefusedCalls;  // Never destroyed: threads may outlive main.
  return counts;
}

void RefusedCalls::Add(const std::string& method, const std::string& reason) {
  absl::MutexLock lock(&mutex_);
  ++counts_[{method, reason}];
}

RefusedCalls::ByMethodAndReason RefusedCalls::counts() const {
  absl::MutexLock lock(&mutex_);
  return counts_;
}

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

Metrics::Metrics() = default;

Metrics::~Metrics() = default;

absl::StatusOr<std::unique_ptr<Metrics>> Metrics::Serve(const std::string& listen) {
  std::unique_ptr<Metrics> metrics(new Metrics);
  Metric(metrics->registry_, exported::kBuildInfo, {{"version", BuildVersion()}}).Set(1);
  auto server = PageServer::Start(listen, {}, [page = metrics.get()] { return page->Text(); });
  if (!server.ok()) {
    return absl::UnavailableError(absl::StrCat("metrics: ", server.status().message()));
  }
  metrics->server_ = *std::move(server);
  const std::string address = WithBrackets(listen);
  metrics->endpoint_ =
      absl::StrCat(address.substr(0, address.rfind(':')), ":", metrics->server_->port());
  return metrics;
}

void Metrics::BeforeScrape(std::function<void()> call) {
  absl::MutexLock lock(&mutex_);
  before_scrape_ = std::move(call);
}

std::string Metrics::Text() const {
  {
    absl::MutexLock lock(&mutex_);
    if (before_scrape_ != nullptr) before_scrape_();
  }
  std::vector<prometheus::MetricFamily> families = registry_.Collect();
  for (prometheus::MetricFamily& family : process_.Collect()) families.push_back(std::move(family));
  return prometheus::TextSerializer().Serialize(families);
}

std::string ScrapeText(const prometheus::Registry& registry) {
  return prometheus::TextSerializer().Serialize(registry.Collect());
}

}  // namespace oxbow::telemetry
