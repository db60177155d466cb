// SPDX-License-Identifier: Apache-2.0
#include "services/learner/record/run_progress.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "metrics/step_metrics.h"

namespace oxbow::learner {
namespace {

// The name of a phase in words.
std::string InWords(const std::string& phase) {
  static const auto& words = *new std::map<std::string, std::string>{
      {"plan", "planning"},   {"wait", kAwaitsRollouts},       {"rewards", kAwaitsRewards},
      {"update", "updating"}, {"publish", "publishing"},       {"offer", "writing to the buffer"},
      {"eval", "evaluating"}, {"checkpoint", "checkpointing"}, {"log", "logging"}};
  const auto found = words.find(phase);
  return found == words.end() ? phase : found->second;
}

bool OfEvaluation(const std::pair<const std::string, double>& number) {
  return metric::IsOfEvaluation(number.first);
}

}  // namespace

RunProgress::RunProgress(const Clock& clock, LearnerMetrics& metrics, uint64_t steps_total,
                         uint64_t committed, uint64_t version)
    : clock_(clock),
      metrics_(metrics),
      steps_total_(steps_total),
      start_(clock.Now()),
      since_(start_),
      step_at_(start_),
      committed_(committed),
      version_(version) {}

void RunProgress::CloseLap() {
  const absl::Duration now = clock_.Now();
  const double seconds = absl::ToDoubleSeconds(now - since_);
  lap_[phase_] += seconds;
  share_[phase_] += seconds;
  metrics_.PhaseTook(phase_, seconds);
  since_ = now;
}

void RunProgress::Enter(const std::string& phase) {
  absl::MutexLock lock(&mutex_);
  CloseLap();
  phase_ = phase;
}

std::map<std::string, double> RunProgress::TakeSeconds() {
  absl::MutexLock lock(&mutex_);
  CloseLap();
  for (auto& [phase, seconds] : share_) seconds *= 0.95;
  return std::exchange(lap_, {});
}

void RunProgress::StepCommitted(uint64_t committed, uint64_t policy_version,
                                const std::map<std::string, double>& metrics) {
  absl::MutexLock lock(&mutex_);
  committed_ = committed;
  version_ = policy_version;
  step_at_ = clock_.Now();
  const bool evaluated = std::any_of(metrics.begin(), metrics.end(), OfEvaluation);
  std::erase_if(numbers_, [&](const auto& number) { return evaluated || !OfEvaluation(number); });
  numbers_.insert(metrics.begin(), metrics.end());
}

void RunProgress::Notice(const std::string& text) {
  OXBOW_LOG(Warning) << "notice" << Field("text", text);
  absl::MutexLock lock(&mutex_);
  if (notices_.size() < kNoticesMax) notices_.push_back(text);
}

double RunProgress::wall_seconds() const { return absl::ToDoubleSeconds(clock_.Now() - start_); }

void RunProgress::FillStatus(v1::StatusResponse& response) const {
  absl::MutexLock lock(&mutex_);
  response.set_learner_step(committed_);
  response.set_steps_total(steps_total_);
  response.set_policy_version(version_);
  const bool rewards = std::any_of(response.workers().begin(), response.workers().end(),
                                   [](const auto& w) { return !w.waiting_for().empty(); });
  response.set_phase(phase_ == "wait" && rewards ? kAwaitsRewards : InWords(phase_));
  response.set_wall_seconds(wall_seconds());
  response.set_seconds_since_step(absl::ToDoubleSeconds(clock_.Now() - step_at_));
  for (const auto& [name, value] : numbers_) {
    v1::NamedValue& number = *response.add_metrics();
    number.set_name(name);
    number.set_value(value);
  }
  for (const std::string& notice : notices_) response.add_notices(notice);
  std::map<std::string, double> spent = share_;
  spent[phase_] += absl::ToDoubleSeconds(clock_.Now() - since_);
  double total = 0;
  for (const auto& [phase, seconds] : spent) total += seconds;
  for (const auto& [phase, seconds] : spent) {
    v1::NamedValue& share = *response.add_time_share();
    share.set_name(phase);
    share.set_value(total > 0 ? seconds / total : 0);
  }
}

}  // namespace oxbow::learner
