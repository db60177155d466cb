// SPDX-License-Identifier: Apache-2.0
#include "telemetry/run_log.h"

#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/descriptor.h"
#include "base/log.h"
#include "base/process.h"
#include "base/status_macros.h"
#include "io/image.h"
#include "metrics/step_metrics.h"

namespace oxbow::telemetry {
namespace {

constexpr char kSamples[] = "samples";
constexpr std::string_view kStepPrefix = "step_";
constexpr size_t kEventPngBytesMax = 1 << 20;
constexpr int kEventQuality = 85;

// Without fsync, for one each would take longer than the writing: eval.jsonl, which names it, is
// written later.
absl::Status WritePicture(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  return file ? absl::OkStatus() : ErrnoStatus("cannot write", path.string(), errno);
}

// A host name usable in a file name.
std::string HostInFileName() {
  std::string host = HostName();
  if (host.empty()) return "localhost";
  for (char& c : host) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '.') c = '_';
  }
  return host;
}

bool IsTag(const std::string& tag) {
  for (const char c : tag) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '-') return false;
  }
  return !tag.empty();
}

// Absent if `name` is not step_<number>.
std::optional<int64_t> StepOfDirectory(std::string_view name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  name.remove_prefix(kStepPrefix.size());
  int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return step;
}

absl::Status DropSamplesAfter(const std::filesystem::path& run_dir, int64_t last_step) {
  std::error_code error;
  std::filesystem::directory_iterator entries(run_dir / kSamples, error);
  if (error == std::errc::no_such_file_or_directory) return absl::OkStatus();
  std::vector<std::filesystem::path> later;
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
    const auto step = StepOfDirectory(entries->path().filename().string());
    if (step && *step > last_step) later.push_back(entries->path());
  }
  for (const auto& directory : later) {
    if (!error) std::filesystem::remove_all(directory, error);
  }
  if (!error) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot remove samples of later steps: ",
                                             error.message(), ": ", (run_dir / kSamples).string()));
}

// A run that begins again has no numbers of its starts before.
void DropEvents(const std::filesystem::path& run_dir) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(run_dir, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("events.out.tfevents.")) files.push_back(entry.path());
  }
  for (const auto& file : files) std::filesystem::remove(file, error);
}

// Leaves in metrics.jsonl the lines up to a step and returns the last one's wall time. A line that
// is not whole may stand at the end; anything else that is no line of metrics is kDataLoss.
absl::StatusOr<double> TrimMetrics(const std::filesystem::path& path, int64_t last_step) {
  absl::StatusOr<LinesFromEnd> lines = LinesFromEnd::Open(path);
  if (absl::IsNotFound(lines.status())) return 0.0;
  OXBOW_RETURN_IF_ERROR(lines.status());
  bool is_last = true;
  uint64_t end = 0;
  double wall_seconds = 0;
  while (true) {
    OXBOW_ASSIGN_OR_RETURN(const std::optional<FileLine> line, lines->Next());
    if (!line) break;
    const auto metrics = io::ParseMetricsLine(line->text);
    if (!metrics && !is_last) {
      return absl::DataLossError(absl::StrCat("not a metrics object with a \"step\": byte ",
                                              line->begin, " of ", path.string()));
    }
    is_last = false;
    if (!metrics || !line->whole || metrics->at(metric::kStep) > static_cast<double>(last_step)) {
      continue;
    }
    end = line->end;
    const auto wall = metrics->find(metric::kTimeWallS);
    if (wall != metrics->end() && std::isfinite(wall->second)) wall_seconds = wall->second;
    break;
  }
  OXBOW_RETURN_IF_ERROR(CutFile(path, end));
  return wall_seconds;
}

}  // namespace

double UnixSeconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

RunLog::RunLog(std::filesystem::path run_dir, AppendFile metrics, io::EventWriter events,
               std::function<double()> unix_seconds)
    : run_dir_(std::move(run_dir)),
      metrics_(std::move(metrics)),
      events_(std::move(events)),
      unix_seconds_(std::move(unix_seconds)) {}

absl::StatusOr<std::unique_ptr<RunLog>> RunLog::Open(const std::filesystem::path& run_dir,
                                                     std::optional<int64_t> resume_after_step,
                                                     std::function<double()> unix_seconds) {
  OXBOW_RETURN_IF_ERROR(MakeDirectories(run_dir));
  const std::filesystem::path path = run_dir / io::kMetricsFile;
  double wall_seconds = 0;
  if (resume_after_step) {
    OXBOW_ASSIGN_OR_RETURN(wall_seconds, TrimMetrics(path, *resume_after_step));
  } else {
    OXBOW_RETURN_IF_ERROR(WriteFileAtomically(path, ""));
    DropEvents(run_dir);
    io::RemoveUnscoredReason(run_dir);
  }
  OXBOW_RETURN_IF_ERROR(DropSamplesAfter(run_dir, resume_after_step.value_or(-1)));
  OXBOW_ASSIGN_OR_RETURN(AppendFile metrics, AppendFile::Open(path));
  const double start = unix_seconds();
  io::EventWriter events(run_dir, {static_cast<int64_t>(start), HostInFileName(), ::getpid()});
  if (resume_after_step) {
    OXBOW_RETURN_IF_ERROR(events.Restart({start, *resume_after_step + 1}));
  }
  std::unique_ptr<RunLog> log(
      new RunLog(run_dir, std::move(metrics), std::move(events), std::move(unix_seconds)));
  log->resumed_wall_seconds_ = wall_seconds;
  return log;
}

// TensorBoard's file is for looking at: what cannot be written now is written with the next event.
void RunLog::Show(const std::map<std::string, double>& scalars, int64_t step) {
  const absl::Status shown = events_.Scalars({unix_seconds_(), step}, scalars);
  if (shown.ok()) return;
  OXBOW_LOG(Warning) << "TensorBoard's file is not written" << Field("step", step)
                     << Field("error", shown);
}

// The lines of a step that was changed and could not be put back.
absl::Status RunLog::PutBack() {
  if (taken_.empty()) return absl::OkStatus();
  OXBOW_RETURN_IF_ERROR(metrics_.Append(taken_, /*sync=*/false));
  taken_.clear();
  return absl::OkStatus();
}

absl::Status RunLog::Step(int64_t step, double wall_seconds,
                          const std::map<std::string, double>& metrics) {
  OXBOW_RETURN_IF_ERROR(PutBack());
  OXBOW_RETURN_IF_ERROR(
      metrics_.Append(io::FormatMetricsLine(step, wall_seconds, metrics), /*sync=*/false));
  std::map<std::string, double> scalars = metrics;
  scalars[metric::kTimeWallS] = wall_seconds;
  Show(scalars, step);
  return absl::OkStatus();
}

absl::Status RunLog::AddToStep(int64_t step, const std::map<std::string, double>& metrics) {
  OXBOW_RETURN_IF_ERROR(PutBack());
  const std::filesystem::path path = run_dir_ / io::kMetricsFile;
  OXBOW_ASSIGN_OR_RETURN(LinesFromEnd lines, LinesFromEnd::Open(path));
  std::map<std::string, double> numbers = metrics;
  double wall_seconds = 0;
  std::string later;
  uint64_t place = 0;
  while (true) {
    OXBOW_ASSIGN_OR_RETURN(const std::optional<FileLine> line, lines.Next());
    if (!line) break;
    auto there = io::ParseMetricsLine(line->text);
    if (there && there->at(metric::kStep) > static_cast<double>(step)) {
      later.insert(0, line->text + "\n");
      continue;
    }
    const bool same = there && there->at(metric::kStep) == static_cast<double>(step);
    place = same ? line->begin : line->end;
    if (there && there->contains(metric::kTimeWallS)) wall_seconds = there->at(metric::kTimeWallS);
    if (same) numbers.merge(*there);
    break;
  }
  OXBOW_RETURN_IF_ERROR(CutFile(path, place));
  taken_ = io::FormatMetricsLine(step, wall_seconds, numbers) + later;
  OXBOW_RETURN_IF_ERROR(PutBack());
  Show(metrics, step);
  return absl::OkStatus();
}

absl::Status RunLog::Images(int64_t step, const std::string& tag, std::string_view caption,
                            const io::Film& sheet) {
  OXBOW_CHECK(IsTag(tag)) << "sample tag is not a file name: " << tag;
  const std::filesystem::path directory = io::SampleDirectory(run_dir_, step);
  OXBOW_RETURN_IF_ERROR(MakeDirectories(directory, 1));
  const Image8& first = sheet.frames.front();
  io::EncodedImage image{first.width, first.height, io::EncodeFilm(sheet)};
  OXBOW_RETURN_IF_ERROR(WriteFileAtomically(directory / (tag + ".txt"), caption));
  OXBOW_RETURN_IF_ERROR(WriteFileAtomically(directory / (tag + ".png"), image.bytes));
  if (sheet.frames.size() == 1 && image.bytes.size() > kEventPngBytesMax) {
    image.bytes = io::EncodeJpeg(first, kEventQuality);
  }
  return events_.Image({unix_seconds_(), step}, absl::StrCat("samples/", tag), image);
}

absl::Status RunLog::Evaluation(int64_t step, std::string_view caption, const io::Film& sheet,
                                const std::vector<io::EvaluatedPicture>& pictures,
                                const std::vector<io::PictureFile>& files) {
  const std::filesystem::path directory = io::SampleDirectory(run_dir_, step);
  OXBOW_RETURN_IF_ERROR(MakeDirectories(directory, 1));
  for (const io::PictureFile& file : files) {
    OXBOW_RETURN_IF_ERROR(WritePicture(directory / file.name, file.bytes));
  }
  OXBOW_RETURN_IF_ERROR(
      WriteFileAtomically(directory / io::kEvaluationFile, io::FormatEvaluation(pictures)));
  return Images(step, "eval", caption, sheet);
}

absl::Status RunLog::EvaluationFailed(const io::EvaluationFailure& failure) {
  return io::WriteEvaluationFailure(run_dir_, failure);
}

absl::Status RunLog::Unscored(const std::string& reason) {
  return io::WriteUnscoredReason(run_dir_, reason);
}

absl::Status RunLog::Text(int64_t step, const std::string& tag, std::string_view markdown) {
  return events_.Text({unix_seconds_(), step}, tag, markdown);
}

absl::Status RunLog::HyperParameters(const std::map<std::string, io::HyperParameter>& values) {
  return events_.HyperParameters({unix_seconds_(), 0}, run_dir_.string(), values);
}

}  // namespace oxbow::telemetry
