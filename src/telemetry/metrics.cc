// SPDX-License-Identifier: Apache-2.0
#include "telemetry/metrics.h"

#include <prometheus/text_serializer.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/build_version.h"
#include "telemetry/families.h"

namespace oxbow::telemetry {
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
