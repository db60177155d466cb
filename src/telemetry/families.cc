// SPDX-License-Identifier: Apache-2.0
#include "telemetry/families.h"

namespace oxbow::telemetry {

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

}  // namespace oxbow::telemetry
