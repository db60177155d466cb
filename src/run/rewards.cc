// SPDX-License-Identifier: Apache-2.0
#include "run/rewards.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace oxbow::run {
std::vector<std::string> RewardNames(const v1::RewardConfig& config) {
  std::vector<std::string> names(config.observed().begin(), config.observed().end());
  for (const v1::RewardTerm& term : config.terms()) names.push_back(term.name());
  return names;
}

std::vector<std::string> OwnRewards(const v1::RewardConfig& config) {
  std::vector<std::string> names = RewardNames(config);
  if (config.endpoints().empty()) return names;
  std::erase_if(names, [&](const std::string& name) {
    return std::none_of(config.scorers().begin(), config.scorers().end(),
                        [&](const v1::ScorerConfig& scorer) { return scorer.name() == name; });
  });
  return names;
}

uint32_t RewardServersOf(const v1::RunConfig& config) {
  return OwnRewards(config.reward()).empty() ? 0 : config.services().reward_servers();
}

std::map<std::string, std::set<std::string>> RewardsNotAsked(
    const v1::RewardConfig& config, const std::vector<std::string>& endpoints) {
  const std::set<std::string> elsewhere(config.endpoints().begin(), config.endpoints().end());
  const auto is_elsewhere = [&](const std::string& endpoint) {
    return elsewhere.contains(endpoint);
  };
  if (std::all_of(endpoints.begin(), endpoints.end(), is_elsewhere)) return {};
  std::set<std::string> own;
  for (const v1::ScorerConfig& scorer : config.scorers()) own.insert(scorer.name());
  std::map<std::string, std::set<std::string>> not_asked;
  for (const std::string& endpoint : endpoints) {
    if (!own.empty() && is_elsewhere(endpoint)) not_asked[endpoint] = own;
  }
  return not_asked;
}

v1::ScorerConfig ScorerOf(const v1::RewardConfig& config, const std::string& name) {
  for (const v1::ScorerConfig& scorer : config.scorers()) {
    if (scorer.name() == name) return scorer;
  }
  v1::ScorerConfig scorer;
  scorer.set_name(name);
  return scorer;
}

bool IsTerm(const v1::RewardConfig& config, const std::string& name) {
  return std::any_of(config.terms().begin(), config.terms().end(),
                     [&](const v1::RewardTerm& term) { return term.name() == name; });
}

double WeightedReward(const v1::RewardConfig& config, const std::map<std::string, double>& scores) {
  double sum = 0;
  for (const v1::RewardTerm& term : config.terms()) {
    const auto score = scores.find(term.name());
    OXBOW_CHECK(score != scores.end()) << "no score for " << term.name();
    sum += term.weight() * score->second;
  }
  return sum;
}

void CountObservedFailures(const v1::RewardConfig& config, const v1::Group& group,
                           std::map<std::string, uint64_t>& failures) {
  for (const v1::Trajectory& trajectory : group.trajectories()) {
    if (trajectory.reward_failed()) continue;
    for (const std::string& name : config.observed()) {
      const bool scored =
          std::any_of(trajectory.rewards().begin(), trajectory.rewards().end(),
                      [&](const v1::NamedValue& reward) { return reward.name() == name; });
      if (!scored) ++failures[name];
    }
  }
}

std::string IdentityVia(v1::PictureTransport transport, const std::string& identity) {
  if (transport != v1::PICTURE_TRANSPORT_JPEG || identity.empty()) return identity;
  return absl::StrCat(identity, "; jpeg q", kTransportJpegQuality);
}

double FullReward(const v1::RewardConfig& config) {
  double sum = 0;
  for (const v1::RewardTerm& term : config.terms()) sum += term.weight();
  return sum;
}

double WholeOf(const v1::RewardConfig& config) {
  const double full = FullReward(config);
  return full > 0 ? full : 1;
}

const reward::SyntheticTask* MeasuredTask(const v1::RewardConfig& reward,
                                          const std::string& prompt) {
  const reward::SyntheticTask* const task = reward::TaskOfPrompt(prompt);
  if (task == nullptr) return nullptr;
  const std::vector<std::string> own = OwnRewards(reward);
  for (const v1::RewardTerm& term : reward.terms()) {
    // An entry may give the name to another scorer.
    const std::string scorer = ScorerOf(reward, term.name()).scorer();
    if (!reward::HasReward(*task, scorer.empty() ? term.name() : scorer) ||
        !absl::c_linear_search(own, term.name())) {
      return nullptr;
    }
  }
  return task;
}

}  // namespace oxbow::run
