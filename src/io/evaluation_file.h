// SPDX-License-Identifier: Apache-2.0
// samples/step_N/eval.jsonl: what an evaluation's pictures were asked to show and how they scored,
// one JSON object a line, in the order of the sheet beside it.
//
//   {"prompt":"digits 473","reward":0.97,"right":false,"picture":"000.png","width":20,"height":8,
//    "frames":1,"seed":"7","group":"9223372036854775808","sample":0,
//    "rewards":{"digits_ocr":0.97,"digits_strict":0}}
//
// A video of which "picture" is the first frame alone has "film":"000.film.jpg","film_frames":17 as
// well. A picture without a score has "reward":null and no rewards. "right" is missing there, and
// where no picture can be right in full; "picture" where a picture was scored only.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace oxbow::io {

inline constexpr char kEvaluationFile[] = "eval.jsonl";

// RUN_DIR/samples/step_000010, which has such a file.
std::filesystem::path SampleDirectory(const std::filesystem::path& run_dir, int64_t step);

struct EvaluatedPicture {
  std::string prompt;
  double reward = 0;          // Weighted sum of the terms; NaN: it has no score.
  std::optional<bool> right;  // The reward is full.
  std::string picture;        // The name of its file, beside this one; "": it was not kept.
  int width = 0;              // In pixels.
  int height = 0;
  int frames = 1;
  std::string film;     // As FilmStrip's file and frames (io/picture_file.h).
  int film_frames = 0;  // Not 0 with a film.
  // Its noise was drawn from these three.
  uint64_t seed = 0;   // The run's.
  uint64_t group = 0;  // Each prompt has one.
  uint32_t sample = 0;
  std::map<std::string, double> rewards;  // Each by its name; without observed ones that failed.

  bool operator==(const EvaluatedPicture&) const = default;
};

// Whether it is a name as the learner gives them: "000.png", "1024.jpg", "000.film.jpg". Never a
// path.
bool IsPictureName(std::string_view name);

// A number that is not finite, which JSON does not have, is written as null and read as NaN.
std::string FormatEvaluation(const std::vector<EvaluatedPicture>& pictures);

// kDataLoss with the line number for a line that is no such object.
absl::StatusOr<std::vector<EvaluatedPicture>> ParseEvaluation(std::string_view content);

// kNotFound if there is no such file.
absl::StatusOr<std::vector<EvaluatedPicture>> ReadEvaluation(const std::filesystem::path& path);

// The failures of a run, in the words of the part that failed. metrics.jsonl has the numbers.
//
//   samples/step_000030/failed.json  why the evaluation of a step with `eval/failed` gave no
//                                    number; a resume drops it with the step:
//     {"reason":"120 of 128 pictures have no score: reward server 127.0.0.1:7103: no face",
//      "missed":["run.stop_if","checkpoint.best"]}
//   unscored.txt                     why samples of `train/samples_unscored` had no score, last
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
