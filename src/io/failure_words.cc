// SPDX-License-Identifier: Apache-2.0
#include "io/failure_words.h"

#include <algorithm>
#include <charconv>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/file.h"
#include "base/json.h"
#include "base/status_macros.h"

namespace oxbow::io {
namespace {

namespace fs = std::filesystem;

constexpr char kFailed[] = "failed.json";
constexpr char kUnscored[] = "unscored.txt";
constexpr uint64_t kWordsBytesMax = 1 << 16;

fs::path DirectoryOf(const fs::path& run_dir, int64_t step) {
  return run_dir / "samples" / absl::StrFormat("step_%06d", step);
}

// The steps of samples/step_N.
std::vector<int64_t> SampledSteps(const fs::path& run_dir) {
  std::vector<int64_t> steps;
  std::error_code error;
  fs::directory_iterator entries(run_dir / "samples", error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    const std::string name = entries->path().filename().string();
    int64_t step = 0;
    if (!name.starts_with("step_")) continue;
    if (std::from_chars(name.data() + 5, name.data() + name.size(), step).ec == std::errc()) {
      steps.push_back(step);
    }
  }
  return steps;
}

}  // namespace

std::string FailureText(const EvaluationFailure& failure) {
  if (failure.missed.empty()) return failure.reason;
  return absl::StrCat(failure.reason, "; no number for ", absl::StrJoin(failure.missed, ", "));
}

absl::Status WriteEvaluationFailure(const fs::path& run_dir, const EvaluationFailure& failure) {
  const fs::path directory = DirectoryOf(run_dir, failure.step);
  OXBOW_RETURN_IF_ERROR(MakeDirectories(directory, 1));
  const nlohmann::ordered_json json = {{"reason", failure.reason}, {"missed", failure.missed}};
  // A server's words are any bytes.
  return WriteFileAtomically(
      directory / kFailed,
      json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

std::optional<EvaluationFailure> EvaluationFailureAt(const fs::path& run_dir, int64_t step) {
  const auto text = ReadFile(DirectoryOf(run_dir, step) / kFailed, kWordsBytesMax);
  if (!text.ok()) return std::nullopt;
  const auto json = ParseJson(*text);
  if (!json.is_object()) return std::nullopt;
  const auto reason = json.find("reason");
  if (reason == json.end() || !reason->is_string()) return std::nullopt;
  EvaluationFailure failure{.step = step, .reason = reason->get<std::string>(), .missed = {}};
  const auto missed = json.find("missed");
  for (const auto& setting : missed == json.end() ? nlohmann::json::array() : *missed) {
    if (setting.is_string()) failure.missed.push_back(setting.get<std::string>());
  }
  return failure;
}

std::optional<EvaluationFailure> LastEvaluationFailure(const fs::path& run_dir) {
  std::vector<int64_t> steps = SampledSteps(run_dir);
  std::sort(steps.rbegin(), steps.rend());
  for (const int64_t step : steps) {
    if (auto failure = EvaluationFailureAt(run_dir, step)) return failure;
  }
  return std::nullopt;
}

absl::Status WriteUnscoredReason(const fs::path& run_dir, const std::string& reason) {
  return WriteFileAtomically(run_dir / kUnscored, absl::StrCat(reason, "\n"));
}

std::string ReadUnscoredReason(const fs::path& run_dir) {
  const auto text = ReadFile(run_dir / kUnscored, kWordsBytesMax);
  return text.ok() ? std::string(absl::StripAsciiWhitespace(*text)) : "";
}

void RemoveUnscoredReason(const fs::path& run_dir) {
  std::error_code ignored;
  fs::remove(run_dir / kUnscored, ignored);
}

}  // namespace oxbow::io
