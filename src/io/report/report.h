// report.html: what a run did, on one page that opens anywhere: images before and after, headline
// numbers, curves with a sentence each on how to read them.
//
// Reads metrics.jsonl, samples/step_*/eval.{png,txt} and config.resolved.yaml of the run's
// directory. In place of missing metrics and images there is a note, so that the report of a run
// in progress can be read too.
#pragma once

#include <filesystem>

#include "absl/status/status.h"

namespace oxbow::io {

// Writes run_dir/report.html, replacing it whole. kNotFound if the run has no metrics.jsonl;
// kDataLoss if that is damaged.
absl::Status WriteReport(const std::filesystem::path& run_dir);

}  // namespace oxbow::io
