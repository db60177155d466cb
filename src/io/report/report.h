// SPDX-License-Identifier: Apache-2.0
// report.html: what a run did, on one page that opens anywhere: the verdict, pictures over the
// steps, headline numbers, and curves with a sentence each on how to read them.
//
// Reads metrics.jsonl, the pictures under samples/ and config.resolved.yaml of the run's directory.
// Numbers that were not measured are left out: the report of a run in progress can be read too.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "io/metrics_file.h"
#include "io/report/gallery.h"
#include "io/report/html.h"
#include "io/report/run_facts.h"
#include "io/report/run_reading.h"

namespace oxbow::io {

inline constexpr uint64_t kReportBytesMax = 6'000'000;  // However long the run.

// The name of the run in `run_dir`: its last part.
std::string RunName(const std::filesystem::path& run_dir);

// The sections in their order.
std::vector<PageSection> ReportParts(const std::filesystem::path& run_dir, const RunReading& run,
                                     const RunFacts& facts, const SheetSource& source);

// The text between <main> and </main>.
std::string JoinParts(const std::vector<PageSection>& parts);

// Writes run_dir/report.html from what `run` has read of it and what is new, replacing it whole;
// while `facts.live` an open page loads itself again. kNotFound if the run has no metrics.jsonl;
// kDataLoss if that is damaged.
absl::Status WriteReport(const std::filesystem::path& run_dir, const RunFacts& facts,
                         RunReading& run);
absl::Status WriteReport(const std::filesystem::path& run_dir, const RunFacts& facts = {});

// All charts under their headings, each where the run measured its numbers, so that none is empty
// and no 0 stands for what was not measured; and a last line with what this run does not measure
// and why.
std::vector<PageSection> PanelSections(const History& history, const RunFacts& facts);

}  // namespace oxbow::io
