// SPDX-License-Identifier: Apache-2.0
// The charts of a run's page. Each is drawn where the run measured what it shows, so that none
// is empty and no 0 stands for what was not measured.
#pragma once

#include <string>
#include <vector>

#include "io/metrics_file.h"
#include "io/report/html.h"
#include "io/report/run_facts.h"

namespace oxbow::io {

// All charts under their headings, and a last line with what this run does not measure and why.
std::vector<PageSection> PanelSections(const History& history, const RunFacts& facts);

}  // namespace oxbow::io
