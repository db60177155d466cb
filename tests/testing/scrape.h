// SPDX-License-Identifier: Apache-2.0
// One number from a process's /metrics page.
#pragma once

#include <optional>
#include <string>

namespace oxbow::testing {

// The value of the line that starts with `series` ("oxbow_x_total{event=\"granted\"}"). Nothing if
// the page does not arrive within two seconds or has no such line.
std::optional<double> Scrape(const std::string& endpoint, const std::string& series);

}  // namespace oxbow::testing
