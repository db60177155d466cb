// SPDX-License-Identifier: Apache-2.0
#include "io/evaluation_file.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
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

using OrderedJson = nlohmann::ordered_json;

constexpr uint64_t kBytesMax = 64 << 20;

OrderedJson NumberOrNull(double value) {
  return std::isfinite(value) ? OrderedJson(value) : OrderedJson(nullptr);
}

double ValueOf(const OrderedJson& json) {
  return json.is_number() ? json.get<double>() : std::numeric_limits<double>::quiet_NaN();
}

// A number of 64 bits, which is text in JSON; 0 if it is not there.
uint64_t NumberIn(const OrderedJson& json, const char* key) {
  const auto found = json.find(key);
  uint64_t number = 0;
  if (found == json.end() || !found->is_string() ||
      !absl::SimpleAtoi(found->get<std::string>(), &number)) {
    return 0;
  }
  return number;
}

std::optional<EvaluatedPicture> ParseLine(std::string_view line) {
  const OrderedJson json = OrderedJson::parse(line, nullptr, false);
  if (!json.is_object() || !json.contains("prompt") || !json["prompt"].is_string()) {
    return std::nullopt;
  }
  EvaluatedPicture picture{.prompt = json["prompt"].get<std::string>()};
  picture.reward = ValueOf(json.value("reward", OrderedJson()));
  if (json.contains("right") && json["right"].is_boolean()) picture.right = json["right"];
  const auto size = [&](const char* key) {
    const auto found = json.find(key);
    return found != json.end() && found->is_number_unsigned() && *found < 1 << 20
               ? found->get<int>()
               : 0;
  };
  picture.width = size("width");
  picture.height = size("height");
  picture.frames = std::max(1, size("frames"));
  picture.sample = static_cast<uint32_t>(size("sample"));
  picture.seed = NumberIn(json, "seed");
  picture.group = NumberIn(json, "group");
  // Whether it is missing or a name.
  const auto file = [&](const char* key, std::string& name) {
    const auto found = json.find(key);
    if (found == json.end() || !found->is_string()) return true;
    name = found->get<std::string>();
    return IsPictureName(name);
  };
  if (!file("picture", picture.picture) || !file("film", picture.film)) return std::nullopt;
  if (!picture.film.empty()) picture.film_frames = std::max(1, size("film_frames"));
  if (const auto rewards = json.find("rewards"); rewards != json.end() && rewards->is_object()) {
    for (const auto& [name, value] : rewards->items()) picture.rewards[name] = ValueOf(value);
  }
  return picture;
}

}  // namespace

std::string FailureText(const EvaluationFailure& failure) {
  if (failure.missed.empty()) return failure.reason;
  return absl::StrCat(failure.reason, "; no number for ", absl::StrJoin(failure.missed, ", "));
}

absl::Status WriteEvaluationFailure(const fs::path& run_dir, const EvaluationFailure& failure) {
  const fs::path directory = SampleDirectory(run_dir, failure.step);
  OXBOW_RETURN_IF_ERROR(MakeDirectories(directory, 1));
  const nlohmann::ordered_json json = {{"reason", failure.reason}, {"missed", failure.missed}};
  // A server's words are any bytes.
  return WriteFileAtomically(
      directory / kFailed,
      json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

std::optional<EvaluationFailure> EvaluationFailureAt(const fs::path& run_dir, int64_t step) {
  const auto text = ReadFile(SampleDirectory(run_dir, step) / kFailed, kWordsBytesMax);
  if (!text.ok()) return std::nullopt;
  const auto json = ParseJson(*text);
  const auto& reason = MemberOf(json, "reason");
  if (!reason.is_string()) return std::nullopt;
  EvaluationFailure failure{.step = step, .reason = reason.get<std::string>(), .missed = {}};
  for (const auto& setting : MemberOf(json, "missed")) {
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

fs::path SampleDirectory(const fs::path& run_dir, int64_t step) {
  return run_dir / "samples" / absl::StrFormat("step_%06d", step);
}

bool IsPictureName(std::string_view name) {
  const size_t digits = name.find('.');
  if (digits == std::string_view::npos || digits < 3) return false;
  for (const char c : name.substr(0, digits)) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(c))) return false;
  }
  const std::string_view rest = name.substr(digits);
  return rest == ".png" || rest == ".jpg" || rest == ".film.jpg";
}

std::string FormatEvaluation(const std::vector<EvaluatedPicture>& pictures) {
  std::string text;
  for (const EvaluatedPicture& picture : pictures) {
    OrderedJson line = {{"prompt", picture.prompt}, {"reward", NumberOrNull(picture.reward)}};
    if (picture.right) line["right"] = *picture.right;
    if (!picture.picture.empty()) line["picture"] = picture.picture;
    line["width"] = picture.width;
    line["height"] = picture.height;
    line["frames"] = picture.frames;
    if (!picture.film.empty()) {
      line["film"] = picture.film;
      line["film_frames"] = picture.film_frames;
    }
    line["seed"] = absl::StrCat(picture.seed);
    line["group"] = absl::StrCat(picture.group);
    line["sample"] = picture.sample;
    line["rewards"] = OrderedJson::object();
    for (const auto& [name, value] : picture.rewards) line["rewards"][name] = NumberOrNull(value);
    // Prompts are any bytes; what is no UTF-8 is written as U+FFFD.
    absl::StrAppend(&text, line.dump(-1, ' ', false, OrderedJson::error_handler_t::replace), "\n");
  }
  return text;
}

absl::StatusOr<std::vector<EvaluatedPicture>> ParseEvaluation(std::string_view content) {
  std::vector<EvaluatedPicture> pictures;
  for (int number = 1; !content.empty(); ++number) {
    const size_t end = std::min(content.find('\n'), content.size());
    const std::string_view line = content.substr(0, end);
    content.remove_prefix(std::min(end + 1, content.size()));
    std::optional<EvaluatedPicture> picture = ParseLine(line);
    if (!picture)
      return absl::DataLossError(absl::StrCat("not an evaluated picture: line ", number));
    pictures.push_back(*std::move(picture));
  }
  return pictures;
}

absl::StatusOr<std::vector<EvaluatedPicture>> ReadEvaluation(const std::filesystem::path& path) {
  OXBOW_ASSIGN_OR_RETURN(const std::string content, ReadFile(path, kBytesMax));
  auto pictures = ParseEvaluation(content);
  if (!pictures.ok()) return Annotate(pictures.status(), path.string());
  return pictures;
}

}  // namespace oxbow::io
