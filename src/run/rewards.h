// SPDX-License-Identifier: Apache-2.0
// The rewards that a config asks for, and what they add up to.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/reward/synthetic_task.h"
#include "oxbow/v1/common.pb.h"
#include "oxbow/v1/config.pb.h"

namespace oxbow::run {

// Names of all rewards that are scored: the observed ones, then the terms.
std::vector<std::string> RewardNames(const v1::RewardConfig& config);

// Names of those that the run's own reward servers have: all with an entry in reward.scorers, and
// the others, too, if reward.endpoints is empty. Same order.
std::vector<std::string> OwnRewards(const v1::RewardConfig& config);

// The run's own reward servers; 0 if all its rewards are elsewhere.
uint32_t RewardServersOf(const v1::RunConfig& config);

// By endpoint: the rewards that a server is not asked for, though it may have them. A reward with
// an entry in reward.scorers belongs to the run's own servers, those of `endpoints` that
// reward.endpoints does not list; a server of that list would be a replica of them that nobody
// asked for. Empty where no server is the run's own.
std::map<std::string, std::set<std::string>> RewardsNotAsked(
    const v1::RewardConfig& config, const std::vector<std::string>& endpoints);

// The entry of a reward in reward.scorers; one of its name alone if there is none.
v1::ScorerConfig ScorerOf(const v1::RewardConfig& config, const std::string& name);

// Whether `name` is a term: a reward that is trained on, not only observed.
bool IsTerm(const v1::RewardConfig& config, const std::string& name);

// The reward of an image: the weighted sum of its terms, added in the config's order. Requires
// `scores`, by name, to hold every term.
double WeightedReward(const v1::RewardConfig& config, const std::map<std::string, double>& scores);

// Adds the samples of a group that have a reward, but not this observed one, by its name.
void CountObservedFailures(const v1::RewardConfig& config, const v1::Group& group,
                           std::map<std::string, uint64_t>& failures);

// Quality of the JPEG files that pictures travel in.
inline constexpr int kTransportJpegQuality = 95;

// The identity of a reward whose pictures travel so: JPEG changes them, and so their scores. "" if
// it has none.
std::string IdentityVia(v1::PictureTransport transport, const std::string& identity);

// The reward of an image whose every term scores 1.
double FullReward(const v1::RewardConfig& config);
// The whole that rewards are shares of: the full reward; 1 where penalties outweigh other terms.
double WholeOf(const v1::RewardConfig& config);

// The synthetic task that measures a run of these rewards on such a prompt: the prompt's task, if
// the run trains on rewards of that task alone and has them from its own servers. Null: the run's
// own rewards measure it.
const reward::SyntheticTask* MeasuredTask(const v1::RewardConfig& reward,
                                          const std::string& prompt);

}  // namespace oxbow::run
