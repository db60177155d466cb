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
#include "io/report/sheets.h"

namespace oxbow::io {

// A run's numbers and pictures, for a reader that asks again and again while the run goes on: each
// line of metrics.jsonl and each sheet is parsed once. A metrics.jsonl that was replaced or became
// shorter, as a rollback leaves it, is read from its start.
class RunReading {
 public:
  explicit RunReading(std::filesystem::path run_dir) : run_dir_(std::move(run_dir)) {}

  // Takes what is new. kNotFound if the run has no metrics.jsonl, kDataLoss if that is damaged:
  // the history is then empty.
  absl::Status Update();
  // The same, without pictures.
  absl::Status UpdateHistory();

  const History& history() const { return history_; }
  const std::vector<Sheet>& sheets() const { return sheets_; }

 private:
  absl::Status TakeNewLines();

  const std::filesystem::path run_dir_;
  History history_;
  uint64_t bytes_ = 0;  // That were parsed.
  uint64_t inode_ = 0;
  SheetCache cache_;
  std::vector<Sheet> sheets_;
};

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
