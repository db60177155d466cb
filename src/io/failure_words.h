// SPDX-License-Identifier: Apache-2.0
// The failures of a run, in the words of the part that failed. metrics.jsonl has the numbers.
//
//   samples/step_000030/failed.json  why the evaluation of a step with `eval/failed` gave no
//                                    number; a resume drops it with the step:
//     {"reason":"120 of 128 pictures have no score: reward server 127.0.0.1:7103: no face",
//      "missed":["run.stop_if","checkpoint.best"]}
//   unscored.txt                     why samples of `train/samples_unscored` had no score, last
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace oxbow::io {

struct EvaluationFailure {
  int64_t step = 0;
  std::string reason;
  std::vector<std::string> missed;  // Settings that wait for its number and got none.
};

// "no face; no number for run.stop_if, checkpoint.best".
std::string FailureText(const EvaluationFailure& failure);

// Files appear whole or not at all.
absl::Status WriteEvaluationFailure(const std::filesystem::path& run_dir,
                                    const EvaluationFailure& failure);
// That of one step, and that of the last step which has one. Nothing without such a file, or if it
// cannot be read.
std::optional<EvaluationFailure> EvaluationFailureAt(const std::filesystem::path& run_dir,
                                                     int64_t step);
std::optional<EvaluationFailure> LastEvaluationFailure(const std::filesystem::path& run_dir);

absl::Status WriteUnscoredReason(const std::filesystem::path& run_dir, const std::string& reason);
// "" without such a file.
std::string ReadUnscoredReason(const std::filesystem::path& run_dir);
void RemoveUnscoredReason(const std::filesystem::path& run_dir);

}  // namespace oxbow::io
