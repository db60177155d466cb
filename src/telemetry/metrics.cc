#include "telemetry/metrics.h"

#include <prometheus/exposer.h>
#include <prometheus/gauge.h>
#include <prometheus/text_serializer.h>

#include <exception>

#include "absl/strings/str_cat.h"

namespace oxbow::telemetry {

Metrics::Metrics() : registry_(std::make_shared<prometheus::Registry>()) {}
Metrics::~Metrics() = default;

absl::StatusOr<std::unique_ptr<Metrics>> Metrics::Serve(const std::string& listen) {
  std::unique_ptr<Metrics> metrics(new Metrics);
  try {
    metrics->exposer_ = std::make_unique<prometheus::Exposer>(listen, /*num_threads=*/1);
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat("cannot serve metrics: ", error.what(), ": ", listen));
  }
  const std::vector<int> ports = metrics->exposer_->GetListeningPorts();
  const std::string host = listen.substr(0, listen.rfind(':'));
  metrics->endpoint_ = absl::StrCat(host, ":", ports.empty() ? 0 : ports.front());
  metrics->exposer_->RegisterCollectable(metrics->registry_);
  prometheus::BuildGauge()
      .Name("oxbow_build_info")
      .Help("Constant 1; the labels say what is running.")
      .Register(*metrics->registry_)
      .Add({{"version", OXBOW_VERSION}})
      .Set(1);
  return metrics;
}

std::string ScrapeText(const prometheus::Registry& registry) {
  return prometheus::TextSerializer().Serialize(registry.Collect());
}

}  // namespace oxbow::telemetry
