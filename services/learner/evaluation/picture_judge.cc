// SPDX-License-Identifier: Apache-2.0
#include "services/learner/evaluation/picture_judge.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/status_macros.h"
#include "base/trace.h"
#include "core/reward/synthetic_task.h"
#include "metrics/step_metrics.h"
#include "run/rewards.h"
#include "services/learner/evaluation/held_out_pictures.h"
#include "services/learner/loop/score_watch.h"

namespace oxbow::learner {
namespace {

constexpr uint32_t kCallsAtOnce = 4;  // Calls to the reward servers.
constexpr size_t kValuesMax = 64;     // Values of metadata with means of their own.

// The value that the metadata of each prompt has for `key`, as part of a metric's name. Empty for a
// prompt without, and for values beyond the first kValuesMax.
std::vector<std::string> ValuesOf(const std::vector<v1::Prompt>& prompts, const std::string& key) {
  std::vector<std::string> values(prompts.size());
  std::set<std::string> known;
  for (size_t i = 0; i < prompts.size() && !key.empty(); ++i) {
    const auto metadata = ParseJson(prompts[i].metadata_json());
    if (!metadata.is_object() || !metadata.contains(key)) continue;
    const nlohmann::json& value = metadata.at(key);
    std::string text = value.is_string() ? value.get<std::string>() : JsonText(value);
    for (char& c : text) {
      if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '.') c = '_';
    }
    if (known.size() == kValuesMax && !known.contains(text)) continue;
    known.insert(text);
    values[i] = text;
  }
  return values;
}

// An evaluation with so many pictures without a score says nothing.
bool TooMany(size_t unscored, size_t pictures) {
  return static_cast<double>(unscored) > UnscoredGuard::kShareMax * static_cast<double>(pictures);
}

}  // namespace

PictureJudge::PictureJudge(Options options, std::vector<v1::Prompt> prompts,
                           reward::RewardClient& rewards)
    : options_(std::move(options)),
      prompts_(std::move(prompts)),
      values_(ValuesOf(prompts_, options_.by)),
      rewards_(rewards) {}

absl::StatusOr<EvaluationResult> PictureJudge::Judge(const Samples& images) {
  OXBOW_ASSIGN_OR_RETURN(const std::vector<Verdict> verdicts, Score(images));
  EvaluationResult result;
  result.metrics = MetricsOf(verdicts);
  AddPictureNumbers(options_.reward, images, result.metrics);
  result.small = SmallPictures(images);
  any_right_ = any_right_ || (HasFullReward() &&
                              std::any_of(verdicts.begin(), verdicts.end(),
                                          [](const Verdict& verdict) { return verdict.right; }));
  result.sheet = SheetOf(images, verdicts);
  result.pictures = PicturesOf(images, verdicts);
  const size_t shown = std::min<size_t>(images.size(), options_.sheet_images);
  for (size_t i = 0; i < shown; ++i) {
    result.files.push_back(io::PictureFileOf(i, shown, images[i]));
    result.pictures[i].picture = result.files.back().name;
    if (auto film = io::FilmStripOf(i, shown, images[i])) {
      result.pictures[i].film = film->file.name;
      result.pictures[i].film_frames = film->frames;
      result.files.push_back(std::move(film->file));
    }
  }
  result.caption =
      absl::StrFormat("held-out prompts, reward %.3f", result.metrics[metric::kEvalRewardMean]);
  if (const double unscored = result.metrics[metric::kEvalSamplesUnscored]; unscored > 0) {
    absl::StrAppendFormat(&result.caption, ", %.0f without a score", unscored);
  }
  return result;
}

// One call per prompt, several at a time: a call is mostly waiting. After a failure no call begins.
absl::StatusOr<std::vector<PictureJudge::Verdict>> PictureJudge::Score(const Samples& images) {
  const uint32_t prompts = static_cast<uint32_t>(std::min<size_t>(prompts_.size(), images.size()));
  std::vector<Verdict> verdicts(images.size());
  std::vector<absl::Status> outcomes(prompts);
  std::atomic<uint32_t> next = 0;
  std::atomic<bool> failed = false;
  std::atomic<size_t> unscored = 0;
  const absl::Duration end = Clock::Steady().Now() + kScoringMax;
  const std::optional<Trace> trace = CurrentTrace();  // The step's; threads begin without one.
  const auto work = [&] {
    const TraceScope scope(trace);
    for (uint32_t prompt = next++; prompt < prompts && !failed; prompt = next++) {
      outcomes[prompt] =
          ScorePrompt(prompt, images, end - Clock::Steady().Now(), verdicts, unscored);
      if (!outcomes[prompt].ok() || TooMany(unscored, images.size())) failed = true;
    }
  };
  std::vector<std::thread> callers;
  for (uint32_t i = 1; i < std::min(kCallsAtOnce, prompts); ++i) callers.emplace_back(work);
  work();
  for (std::thread& caller : callers) caller.join();
  for (const absl::Status& outcome : outcomes) OXBOW_RETURN_IF_ERROR(outcome);
  if (!TooMany(unscored, images.size())) return verdicts;
  const auto first = std::find_if(verdicts.begin(), verdicts.end(),
                                  [](const Verdict& verdict) { return !verdict.unscored.ok(); });
  return absl::FailedPreconditionError(
      absl::StrCat(unscored.load(), " of ", images.size(),
                   " pictures have no score: ", std::string(first->unscored.message())));
}

// Scores the images of one prompt: i, i + N, ...
absl::Status PictureJudge::ScorePrompt(uint32_t prompt, const Samples& images, absl::Duration limit,
                                       std::vector<Verdict>& verdicts,
                                       std::atomic<size_t>& unscored) {
  std::vector<reward::Frames> batch;
  for (size_t i = prompt; i < images.size(); i += prompts_.size()) batch.push_back(images[i]);
  auto scores = rewards_.ScoreMedia(prompts_[prompt].text(), prompts_[prompt].metadata_json(),
                                    batch, {.limit = limit});
  for (size_t k = 0; k < scores.size(); ++k) {
    Verdict& verdict = verdicts[prompt + k * prompts_.size()];
    if (scores[k].ok()) {
      verdict = VerdictOf(*std::move(scores[k]));
    } else if (reward::IsUnscorable(scores[k].status())) {
      verdict.unscored = scores[k].status();
      ++unscored;
    } else {
      return Annotate(scores[k].status(),
                      absl::StrCat("evaluation of \"", prompts_[prompt].text(), "\""));
    }
  }
  return absl::OkStatus();
}

PictureJudge::Verdict PictureJudge::VerdictOf(reward::Scores scores) const {
  Verdict verdict;
  verdict.reward = run::WeightedReward(options_.reward, scores);
  verdict.right = verdict.reward >= run::FullReward(options_.reward) - 1e-9;
  verdict.scores = std::move(scores);
  return verdict;
}

std::map<std::string, double> PictureJudge::MetricsOf(const std::vector<Verdict>& verdicts) const {
  double count = 0;  // Pictures with a score.
  double reward_sum = 0;
  struct Sum {
    double value = 0;
    double count = 0;
    double mean() const { return value / count; }
  };
  std::map<std::string, Sum> sums;
  for (const Verdict& verdict : verdicts) {
    if (!verdict.unscored.ok()) continue;
    ++count;
    reward_sum += verdict.reward;
    for (const auto& [name, value] : verdict.scores) {
      sums[name].value += value;
      ++sums[name].count;
    }
  }
  std::map<std::string, double> metrics = {
      {metric::kEvalRewardMean, reward_sum / count},
      {metric::kEvalSamplesUnscored, static_cast<double>(verdicts.size()) - count}};
  for (const auto& [name, sum] : sums) {
    metrics[metric::kEvalRewardNameMean.Of(name)] = sum.mean();
  }
  for (const std::string& name : options_.reward.observed()) {
    const double failed = count - sums[name].count;
    if (failed > 0) metrics[metric::kEvalRewardNameFailed.Of(name)] = failed;
  }
  for (const auto& [name, sum] : sums) {
    if (!reward::SaysLayout(name) || sum.count == 0) continue;
    metrics[metric::kEvalMinorityShare] = std::min(sum.mean(), 1 - sum.mean());
  }
  AddMeansByValue(verdicts, metrics);
  return metrics;
}

void PictureJudge::AddMeansByValue(const std::vector<Verdict>& verdicts,
                                   std::map<std::string, double>& metrics) const {
  std::map<std::string, std::pair<double, double>> sums;  // Rewards, and their number.
  for (size_t i = 0; i < verdicts.size(); ++i) {
    const std::string& value = values_[i % values_.size()];
    if (value.empty() || !verdicts[i].unscored.ok()) continue;
    sums[value].first += verdicts[i].reward;
    sums[value].second += 1;
  }
  for (const auto& [value, sum] : sums) {
    metrics[metric::kEvalByValueMean.Of(value)] = sum.first / sum.second;
  }
}

io::Film PictureJudge::SheetOf(const Samples& images, const std::vector<Verdict>& verdicts) const {
  std::vector<io::FilmCell> cells(std::min<size_t>(images.size(), options_.sheet_images));
  for (size_t i = 0; i < cells.size(); ++i) {
    cells[i].frames = images[i];
    if (any_right_ && verdicts[i].unscored.ok()) {
      cells[i].border = verdicts[i].right ? io::kRightColour : io::kWrongColour;
    }
    cells[i].label = absl::StrFormat("%03d", i);
  }
  const bool moves = !cells.empty() && cells.front().frames.size() > 1;
  return io::FilmGrid(cells, {}, moves ? io::kSheetPixelsMax : io::kPictureSheetPixelsMax);
}

std::vector<io::EvaluatedPicture> PictureJudge::PicturesOf(
    const Samples& images, const std::vector<Verdict>& verdicts) const {
  const bool full = HasFullReward();
  std::vector<io::EvaluatedPicture> pictures;
  for (size_t i = 0; i < images.size(); ++i) {
    const flow::NoiseKey key = HeldOutKeyOf(options_.seed, i, prompts_.size());
    pictures.push_back({.prompt = prompts_[i % prompts_.size()].text(),
                        .reward = verdicts[i].reward,
                        .right = full && verdicts[i].unscored.ok()
                                     ? std::optional(verdicts[i].right)
                                     : std::nullopt,
                        .width = images[i].front().width,
                        .height = images[i].front().height,
                        .frames = static_cast<int>(images[i].size()),
                        .seed = key.run_seed,
                        .group = key.group,
                        .sample = key.sample,
                        .rewards = verdicts[i].scores});
  }
  return pictures;
}

bool PictureJudge::HasFullReward() const {
  const std::map<std::string, reward::RewardFacts> facts = rewards_.Facts();
  return std::all_of(options_.reward.terms().begin(), options_.reward.terms().end(),
                     [&](const v1::RewardTerm& term) {
                       const auto found = facts.find(term.name());
                       return found != facts.end() && found->second.value_min == 0 &&
                              found->second.value_max == 1 && term.weight() > 0;
                     });
}

}  // namespace oxbow::learner
