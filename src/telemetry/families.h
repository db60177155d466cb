// SPDX-License-Identifier: Apache-2.0
// Makes a registry's metrics from the rows of metrics/exported_metrics.h.
//
// Metric: one without labels, or with these. Family: all of one name; Add({{label, value}}) on it
// makes one of them. A name that the registry has already stays as it is. References live as long
// as the registry.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include "metrics/exported_metrics.h"

namespace oxbow::telemetry {

using Buckets = prometheus::Histogram::BucketBoundaries;

prometheus::Family<prometheus::Counter>& Family(prometheus::Registry& registry,
                                                const exported::Counter& row);
prometheus::Family<prometheus::Gauge>& Family(prometheus::Registry& registry,
                                              const exported::Gauge& row);
prometheus::Family<prometheus::Histogram>& Family(prometheus::Registry& registry,
                                                  const exported::Histogram& row);

prometheus::Counter& Metric(prometheus::Registry& registry, const exported::Counter& row,
                            const prometheus::Labels& labels = {});
prometheus::Gauge& Metric(prometheus::Registry& registry, const exported::Gauge& row,
                          const prometheus::Labels& labels = {});
prometheus::Histogram& Metric(prometheus::Registry& registry, const exported::Histogram& row,
                              const Buckets& buckets);

}  // namespace oxbow::telemetry
