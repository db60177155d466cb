// SPDX-License-Identifier: Apache-2.0
// Charts as one SVG file that needs no page around it, for README and docs.
#pragma once

#include <string>
#include <vector>

#include "io/report/svg_chart.h"

namespace oxbow::io {

struct PictureChart {
  ChartSpec spec;
  std::vector<Series> series;  // In the same order, with the same names, in all charts.
};

// The charts in rows of `columns`, each below its title, with `title` above them and one legend
// below. Light and dark as the reader's system is. A chart without a finite point is left empty.
// Requires a chart.
std::string SvgPicture(const std::string& title, const std::vector<PictureChart>& charts,
                       int columns);

}  // namespace oxbow::io
