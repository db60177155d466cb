// SPDX-License-Identifier: Apache-2.0
// Files that a run writes for people: metrics.jsonl, sample sheets and TensorBoard events in its
// directory.
//
//   metrics.jsonl                       one object per learner step (io/metrics_file.h)
//   samples/step_000010/TAG.png         a contact sheet, animated for videos
//   samples/step_000010/TAG.txt         its caption
//   samples/step_000010/000.png         an evaluation's pictures (io/picture_file.h)
//   samples/step_000010/eval.jsonl      their prompts and rewards
//   samples/step_000010/failed.json     why an evaluation gave no number (io/evaluation_file.h)
//   unscored.txt                        why samples had no score
//   events.out.tfevents.*               the same numbers and sheets for TensorBoard
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file.h"
#include "io/evaluation_file.h"
#include "io/film.h"
#include "io/metrics_file.h"
#include "io/picture_file.h"
#include "io/tensorboard/event_writer.h"

namespace oxbow::telemetry {

// Reads what RunLog writes; a cut last line, as a run in progress may have, is left out.
using io::ReadMetrics;

// Seconds since 1970 by the system's clock; TensorBoard dates its events with it.
double UnixSeconds();

// Owned by one thread.
class RunLog {
 public:
  // Creates `run_dir`. Without `resume_after_step` the run is new: an existing metrics.jsonl is
  // replaced by an empty one, and events of its starts before go. With it, lines and sheets of
  // later steps are dropped, because the resumed run makes them again, and TensorBoard is told to
  // forget them; the old metrics.jsonl is replaced whole or not at all.
  static absl::StatusOr<std::unique_ptr<RunLog>> Open(
      const std::filesystem::path& run_dir, std::optional<int64_t> resume_after_step = std::nullopt,
      std::function<double()> unix_seconds = UnixSeconds);

  // Appends one line, or after an error none. `wall_seconds` is the run's time so far; a resumed
  // run counts on from resumed_wall_seconds().
  absl::Status Step(int64_t step, double wall_seconds,
                    const std::map<std::string, double>& metrics);

  // Adds numbers to the line of a step, which is one of the last ones. Without such a line they are
  // one of their own, in its place. A crash meanwhile may cost that line and those behind it; after
  // an error they are written before anything else.
  absl::Status AddToStep(int64_t step, const std::map<std::string, double>& metrics);

  // Stores a sheet made by io::FilmGrid, animated if it has several frames. `tag` names the file
  // ("eval"): letters, digits, '_' and '-'. TensorBoard gets a large picture as a JPEG.
  absl::Status Images(int64_t step, const std::string& tag, std::string_view caption,
                      const io::Film& sheet);

  // Stores the pictures of an evaluation, what they are (io/evaluation_file.h), and last their
  // sheet as Images does, with the tag "eval": who sees a sheet finds the rest.
  absl::Status Evaluation(int64_t step, std::string_view caption, const io::Film& sheet,
                          const std::vector<io::EvaluatedPicture>& pictures,
                          const std::vector<io::PictureFile>& files);

  // Stores why an evaluation gave no number, and why samples had no score; the line of the step has
  // the numbers.
  absl::Status EvaluationFailed(const io::EvaluationFailure& failure);
  absl::Status Unscored(const std::string& reason);

  // A page for TensorBoard's text tab, such as the resolved configuration.
  absl::Status Text(int64_t step, const std::string& tag, std::string_view markdown);

  // Values by which TensorBoard compares runs; see io::EventWriter.
  absl::Status HyperParameters(const std::map<std::string, io::HyperParameter>& values);

  // The wall time of the last line kept by a resume; 0 for a new run.
  double resumed_wall_seconds() const { return resumed_wall_seconds_; }

 private:
  RunLog(std::filesystem::path run_dir, AppendFile metrics, io::EventWriter events,
         std::function<double()> unix_seconds);
  void Show(const std::map<std::string, double>& scalars, int64_t step);
  absl::Status PutBack();

  const std::filesystem::path run_dir_;
  AppendFile metrics_;
  std::string taken_;  // Lines that are in no file at this moment.
  io::EventWriter events_;
  const std::function<double()> unix_seconds_;
  double resumed_wall_seconds_ = 0;
};

}  // namespace oxbow::telemetry
