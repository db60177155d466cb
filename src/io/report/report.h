// report.html: what a run did, on one page that opens anywhere: pictures before and after, headline
// numbers, curves with a sentence each on how to read them.
//
// Reads metrics.jsonl, samples/step_*/eval.{png,txt} and config.resolved.yaml of the run's
// directory. Missing metrics and pictures leave a note in their place, so a run in progress can be
// looked at. Metrics shown: eval/{reward_mean,strict_mean,speckle_mean,minority_share},
// train/{reward_mean,
// reward_zero_std_ratio,clip_frac_{total,fresh,stale,replay},iw_{mean,min,ess},kl_div,grad_norm,
// onpolicy_ratio_err}, buffer/{size,staleness_mean,staleness_p95}, throughput/samples_per_s, and
// every time/NAME_s as a part of the step except time/wall_s and time/step_s.
#pragma once

#include <filesystem>

#include "absl/status/status.h"

namespace oxbow::io {

// Writes run_dir/report.html, replacing it whole. kNotFound if the run has no metrics.jsonl;
// kDataLoss if that is damaged.
absl::Status WriteReport(const std::filesystem::path& run_dir);

}  // namespace oxbow::io
