// SPDX-License-Identifier: Apache-2.0
#include "rewards/judge_scorer.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/synchronization/mutex.h"
#include "base/first_part.h"
#include "base/json.h"
#include "base/sha256.h"
#include "base/status_macros.h"
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

using reward::Item;
using reward::Score;

constexpr size_t kNoteMax = 2000;
constexpr uint32_t kFramesEvery = 8;  // Each frame of a video that it judges is a request.

// At most so many at a time, over all batches.
class Slots {
 public:
  explicit Slots(int count) : free_(count) {}
  // False if none is free within `time_max`.
  bool Take(absl::Duration time_max) {
    absl::MutexLock lock(&mutex_);
    const auto some = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return free_ > 0; };
    if (!mutex_.AwaitWithTimeout(absl::Condition(&some), time_max)) return false;
    --free_;
    return true;
  }
  void Return() {
    absl::MutexLock lock(&mutex_);
    ++free_;
  }

 private:
  absl::Mutex mutex_;
  int free_ ABSL_GUARDED_BY(mutex_);
};

class JudgeScorer final : public reward::Scorer {
 public:
  JudgeScorer(reward::RewardFacts facts, JudgePreset preset, JudgeSettings settings)
      : facts_(std::move(facts)),
        preset_(preset),
        settings_(std::move(settings)),
        slots_(settings_.concurrency),
        server_(settings_.server) {}

  const reward::RewardFacts& facts() const override { return facts_; }
  void Stop() override { server_.Stop(); }
  int concurrency_max() const override { return 4; }  // A batch that hangs delays no other.
  std::vector<absl::StatusOr<Score>> ScoreBatch(absl::Span<const Item> items) override;

 private:
  absl::StatusOr<Score> ScoreItem(const Item& item, absl::Duration until);

  const reward::RewardFacts facts_;
  const JudgePreset preset_;
  const JudgeSettings settings_;
  Slots slots_;
  RemoteServer server_;
};

absl::StatusOr<Score> JudgeScorer::ScoreItem(const Item& item, absl::Duration until) {
  const std::string request =
      JudgeRequest(preset_, settings_.llm, settings_.question, item.prompt, item.picture());
  if (!slots_.Take(until - server_.Now())) {
    return absl::DeadlineExceededError("the judge is busy with other pictures");
  }
  const absl::StatusOr<std::string> answer = server_.Ask("/chat/completions", request, until);
  slots_.Return();
  OXBOW_RETURN_IF_ERROR(answer.status());
  const absl::StatusOr<ChatAnswer> chat = ReadChatAnswer(*answer);
  if (!chat.ok()) return server_.Clean(chat.status());
  absl::StatusOr<Score> score = JudgeScore(preset_, *chat);
  if (!score.ok()) return server_.Clean(score.status());
  score->note = FirstPart(server_.WithoutKey(score->note), kNoteMax);
  return score;
}

std::vector<absl::StatusOr<Score>> JudgeScorer::ScoreBatch(absl::Span<const Item> items) {
  const absl::Duration until = server_.Now() + settings_.time_max;
  std::vector<absl::StatusOr<Score>> scores(items.size(), absl::UnknownError("not scored"));
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < items.size(); i = next++) scores[i] = ScoreItem(items[i], until);
  };
  std::vector<std::jthread> others;
  const size_t requests = std::min<size_t>(items.size(), settings_.concurrency);
  for (size_t i = 1; i < requests; ++i) others.emplace_back(work);
  work();
  others.clear();  // Joins them.
  return scores;
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

absl::StatusOr<std::unique_ptr<reward::Scorer>> MakeJudge(JudgeSettings settings) {
  OXBOW_RETURN_IF_ERROR(io::CheckHttpUrl(settings.server.url));
  OXBOW_ASSIGN_OR_RETURN(const JudgePreset preset, JudgePresetNamed(settings.preset));
  const std::string standard = JudgeQuestion(preset);
  if (!settings.question.empty() && preset != JudgePreset::kYesNo) {
    return absl::InvalidArgumentError(
        absl::StrCat(settings.preset, " has its own question; `question` is for yes_no"));
  }
  if (settings.question.empty()) settings.question = standard;
  std::string identity = absl::StrCat("vlm/1 ", settings.preset, " ", settings.llm);
  if (settings.question != standard) {
    absl::StrAppend(&identity, " question ", Sha256Hex(settings.question).substr(0, 16));
  }
  reward::RewardFacts facts{.name = settings.name,
                            .help = absl::StrCat("a judge's answer (", settings.preset, ")"),
                            .identity = std::move(identity),
                            .batch_max = static_cast<uint32_t>(settings.concurrency),
                            .frames_every = kFramesEvery,
                            .cache_items = kRemoteCacheItems};
  return std::make_unique<JudgeScorer>(std::move(facts), preset, std::move(settings));
}

}  // namespace oxbow::rewards
