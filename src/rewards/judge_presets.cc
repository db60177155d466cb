// SPDX-License-Identifier: Apache-2.0
#include "rewards/judge_presets.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/first_part.h"
#include "base/json.h"
#include "core/reward/pillow_resize.h"
#include "io/image.h"

namespace oxbow::rewards {
namespace {

using Json = nlohmann::json;

constexpr int kUnifiedSide = 512;
constexpr int kTopLogprobs = 20;
constexpr size_t kJudgedExcerptMax = 8192;  // A key in it is whole, so that it can be found.

// flow_grpo's text, letter by letter: the judge was trained with it.
constexpr char kUnifiedQuestion[] =
    "<image>\nYou are given a text caption and a generated image based on that caption. Your task "
    "is "
    "to evaluate this image based on two key criteria:\n1. Alignment with the Caption: Assess how "
    "well this image aligns with the provided caption. Consider the accuracy of depicted objects, "
    "their relationships, and attributes as described in the caption.\n2. Overall Image Quality: "
    "Examine the visual quality of this image, including clarity, detail preservation, color "
    "accuracy, and overall aesthetic appeal.\nBased on the above criteria, assign a score from 1 "
    "to "
    "5 after 'Final Score:'.\nYour task is provided as follows:\nText Caption: [{prompt}]";

std::string_view Unspaced(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(" \t\r\n\v\f"), text.size()));
}

// The number of the first place that matches `Final Score:\s*([1-5](?:\.\d+)?)`.
absl::StatusOr<double> FinalScore(std::string_view text) {
  constexpr std::string_view kLabel = "Final Score:";
  for (size_t at = text.find(kLabel); at != text.npos; at = text.find(kLabel, at + 1)) {
    const std::string_view rest = Unspaced(text.substr(at + kLabel.size()));
    if (rest.empty() || rest[0] < '1' || rest[0] > '5') continue;
    size_t end = 1;
    const auto digit = [&](size_t i) { return i < rest.size() && absl::ascii_isdigit(rest[i]); };
    if (end < rest.size() && rest[end] == '.' && digit(end + 1)) {
      for (end += 2; digit(end);) ++end;
    }
    double score = 0;
    if (absl::SimpleAtod(std::string(rest.substr(0, end)), &score)) return score;
  }
  return absl::DataLossError(
      absl::StrCat("the judge gave no `Final Score: 1..5`: ",
                   absl::CHexEscape(std::string(text.substr(0, kJudgedExcerptMax)))));
}

absl::StatusOr<double> YesShare(const std::map<std::string, double>& first_token) {
  const auto logprob = [&](const char* token) {
    const auto at = first_token.find(token);
    return at == first_token.end() ? -std::numeric_limits<double>::infinity() : at->second;
  };
  const double yes = logprob("Yes"), no = logprob("No");
  if (std::isfinite(yes) || std::isfinite(no)) return 1 / (1 + std::exp(no - yes));
  if (first_token.empty()) return absl::DataLossError("the judge's answer has no top_logprobs");
  return absl::DataLossError("neither Yes nor No is among the judge's likeliest tokens");
}

}  // namespace

absl::StatusOr<JudgePreset> JudgePresetNamed(const std::string& name) {
  if (name == "unifiedreward") return JudgePreset::kUnifiedReward;
  if (name == "yes_no") return JudgePreset::kYesNo;
  return absl::InvalidArgumentError(
      absl::StrCat("a judge's `variant` is unifiedreward or yes_no, got ", name));
}

std::string JudgeQuestion(JudgePreset preset) {
  return preset == JudgePreset::kYesNo ? "Is it a beautiful image?" : kUnifiedQuestion;
}

std::string JudgeRequest(JudgePreset preset, const std::string& llm, std::string_view question,
                         std::string_view prompt, const Image8& picture) {
  const bool unified = preset == JudgePreset::kUnifiedReward;
  const std::string png =
      io::EncodePng(unified ? reward::ResizeAsPillow(picture, kUnifiedSide, kUnifiedSide,
                                                     reward::ResizeKernel::kBicubic)
                            : picture);
  const Json image = {
      {"type", "image_url"},
      {"image_url", {{"url", absl::StrCat("data:image/png;base64,", absl::Base64Escape(png))}}}};
  const Json text = {
      {"type", "text"},
      {"text", absl::StrReplaceAll(std::string(question), {{"{prompt}", std::string(prompt)}})}};
  Json request = {{"model", llm},
                  {"messages", Json::array({{{"role", "user"}, {"content", {image, text}}}})},
                  {"temperature", 0}};
  if (!unified) {
    request["max_completion_tokens"] = 1;
    request["logprobs"] = true;
    request["top_logprobs"] = kTopLogprobs;
  }
  return JsonText(request);
}

absl::StatusOr<reward::Score> JudgeScore(JudgePreset preset, const ChatAnswer& answer) {
  const bool unified = preset == JudgePreset::kUnifiedReward;
  const absl::StatusOr<double> value =
      unified ? FinalScore(answer.text) : YesShare(answer.first_token);
  if (!value.ok()) return value.status();
  return reward::Score{.value = unified ? *value / 5 : *value,
                       .note = FirstPart(answer.text, kJudgedExcerptMax)};
}

}  // namespace oxbow::rewards
