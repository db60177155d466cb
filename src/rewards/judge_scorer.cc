// SPDX-License-Identifier: Apache-2.0
#include "rewards/judge_scorer.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/first_part.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "rewards/judge_presets.h"
#include "rewards/remote_answer.h"

namespace oxbow::rewards {
namespace {

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
