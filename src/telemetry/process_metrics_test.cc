// SPDX-License-Identifier: Apache-2.0
// Metrics of the process and its disks agree with what the system says elsewhere.
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>
#include <sys/resource.h>

#include <ctime>
#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "telemetry/metrics.h"

namespace oxbow::telemetry {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::map<std::string, double> Values(const ProcessMetrics& metrics) {
  std::map<std::string, double> values;
  for (const prometheus::MetricFamily& family : metrics.Collect()) {
    const prometheus::ClientMetric& first = family.metric.at(0);
    values[family.name] =
        family.type == prometheus::MetricType::Counter ? first.counter.value : first.gauge.value;
  }
  return values;
}

TEST(ProcessMetricsTest, AgreesWithTheSystem) {
  ProcessMetrics metrics;
  rusage usage{};
  do {  // Until the clock of 100 ticks a second has seen this process.
    ASSERT_EQ(::getrusage(RUSAGE_SELF, &usage), 0);
  } while (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec < 30'000);
  const auto values = Values(metrics);
  const double cpu = static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                     1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  EXPECT_NEAR(values.at("process_cpu_seconds_total"), cpu, 0.1);
  const double resident = values.at("process_resident_memory_bytes");
  EXPECT_GT(resident, 1e6);
  EXPECT_LE(resident, 1.1 * 1024 * static_cast<double>(usage.ru_maxrss));
  EXPECT_LE(values.at("process_start_time_seconds"), static_cast<double>(std::time(nullptr)) + 2);
  EXPECT_GT(values.at("process_start_time_seconds"), static_cast<double>(std::time(nullptr)) - 60);
}

TEST(ProcessMetricsTest, DisksAreByUseAndOneThatIsGoneIsLeftOut) {
  ProcessMetrics metrics;
  EXPECT_EQ(Values(metrics).count("oxbow_disk_size_bytes"), 0u);
  metrics.WatchDisk("gone", "/no/such/directory");
  metrics.WatchDisk("run", "/");
  const std::string text = prometheus::TextSerializer().Serialize(metrics.Collect());
  EXPECT_THAT(text, HasSubstr("oxbow_disk_available_bytes{use=\"run\"} "));
  EXPECT_THAT(text, Not(HasSubstr("gone")));
  const auto values = Values(metrics);
  EXPECT_LE(values.at("oxbow_disk_available_bytes"), values.at("oxbow_disk_size_bytes"));
  EXPECT_GT(values.at("oxbow_disk_size_bytes"), 0);
}

}  // namespace
}  // namespace oxbow::telemetry
