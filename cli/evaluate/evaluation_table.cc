// SPDX-License-Identifier: Apache-2.0
#include "cli/evaluate/evaluation_table.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/statistics.h"

namespace oxbow::cli {
namespace {

constexpr char kOverall[] = "overall";
constexpr size_t kParts = 10;

// Groups of the prompts in the order in which they first come.
std::vector<std::string> GroupsOf(const std::vector<SetPrompt>& prompts) {
  std::vector<std::string> groups;
  for (const SetPrompt& prompt : prompts) {
    if (std::find(groups.begin(), groups.end(), prompt.group) == groups.end()) {
      groups.push_back(prompt.group);
    }
  }
  return groups;
}

// Values of one group, prompt by prompt: those that all evaluations have.
struct GroupValues {
  std::string group;
  std::vector<std::vector<double>> of;  // By evaluation.
  std::vector<double> differences;      // Where there are two evaluations.
};

GroupValues ValuesOf(const std::string& group, const std::vector<SetPrompt>& prompts,
                     const std::vector<SetValues>& evaluations, size_t reward, double scale) {
  GroupValues values{.group = group, .of = {}, .differences = {}};
  values.of.resize(evaluations.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (prompts[i].group != group) continue;
    const bool whole = std::ranges::all_of(evaluations, [&](const SetValues& evaluation) {
      return evaluation.rewards[reward].by_prompt[i].has_value();
    });
    if (!whole) continue;
    for (size_t e = 0; e < evaluations.size(); ++e) {
      values.of[e].push_back(scale * *evaluations[e].rewards[reward].by_prompt[i]);
    }
    if (values.of.size() == 2) {
      values.differences.push_back(values.of[1].back() - values.of[0].back());
    }
  }
  return values;
}

// The spread that HPSv2's benchmark prints. Nothing for fewer prompts than parts.
std::optional<double> SpreadOfTenths(const std::vector<double>& values) {
  if (values.size() < kParts) return std::nullopt;
  std::vector<double> means;
  for (size_t part = 0; part < kParts; ++part) {
    const auto at = [&](size_t i) {
      return values.begin() + static_cast<std::ptrdiff_t>(i * values.size() / kParts);
    };
    means.push_back(Mean({at(part), at(part + 1)}));
  }
  return StandardDeviation(means, 0);
}

// One row over these groups.
SetRow RowOver(const std::vector<GroupValues>& groups, const RewardValues& reward,
               const std::string& name, uint64_t seed) {
  SetRow row{.reward = reward.name, .identity = reward.identity, .group = name};
  const auto interval = [&](const auto& values_of) {
    std::vector<std::vector<double>> values;
    for (const GroupValues& group : groups) values.push_back(values_of(group));
    return reward::BootstrapMean(values, seed);
  };
  for (const GroupValues& group : groups) row.prompts += group.of[0].size();
  row.value = interval([](const GroupValues& group) { return group.of[0]; });
  if (groups.front().of.size() == 2) {
    row.other = interval([](const GroupValues& group) { return group.of[1]; });
    row.difference = interval([](const GroupValues& group) { return group.differences; });
  }
  return row;
}

// All values as of one group.
GroupValues Pooled(const std::vector<GroupValues>& groups) {
  GroupValues all{.group = kOverall, .of = {}, .differences = {}};
  all.of.resize(groups.front().of.size());
  for (const GroupValues& group : groups) {
    for (size_t e = 0; e < all.of.size(); ++e) {
      all.of[e].insert(all.of[e].end(), group.of[e].begin(), group.of[e].end());
    }
    all.differences.insert(all.differences.end(), group.differences.begin(),
                           group.differences.end());
  }
  return all;
}

}  // namespace

SetReport Report(const v1::EvaluationSet& set, const std::vector<SetPrompt>& prompts,
                 std::vector<SetValues> evaluations, uint64_t seed) {
  OXBOW_CHECK(evaluations.size() == 1 || evaluations.size() == 2) << evaluations.size();
  SetReport report{
      .set = set, .prompts = prompts.size(), .seed = seed, .evaluations = {}, .rows = {}};
  const std::vector<std::string> names = GroupsOf(prompts);
  for (size_t r = 0; r < evaluations.front().rewards.size(); ++r) {
    const RewardValues& reward = evaluations.front().rewards[r];
    std::vector<GroupValues> groups;
    for (const std::string& name : names) {
      GroupValues values = ValuesOf(name, prompts, evaluations, r, set.scale());
      if (!values.of[0].empty()) groups.push_back(std::move(values));
    }
    if (groups.empty()) continue;
    for (const GroupValues& group : groups) {
      if (group.group.empty()) continue;  // A prompt of no group counts in the whole.
      report.rows.push_back(RowOver({group}, reward, group.group, seed));
      if (set.report() == v1::SET_REPORT_TENTHS) {
        report.rows.back().tenths = SpreadOfTenths(group.of[0]);
      }
    }
    const bool pooled = set.report() == v1::SET_REPORT_PROMPTS;
    report.rows.push_back(
        RowOver(pooled ? std::vector{Pooled(groups)} : groups, reward, kOverall, seed));
  }
  report.evaluations = std::move(evaluations);
  return report;
}

}  // namespace oxbow::cli
