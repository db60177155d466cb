// SPDX-License-Identifier: Apache-2.0
#include "services/learner/plan/prompt_order.h"

#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/philox.h"

namespace oxbow::learner {
namespace {

constexpr uint32_t kExtra = 1;  // StreamKey::sample of extra prompts; passes use 0.

}  // namespace

PromptOrder::PromptOrder(std::vector<v1::Prompt> prompts, uint64_t seed, PromptPosition position)
    : prompts_(std::move(prompts)), seed_(seed), position_(position) {
  OXBOW_CHECK(!prompts_.empty()) << "prompts to order";
  OXBOW_CHECK(position_.taken <= prompts_.size()) << "position " << position_.taken;
  Shuffle();
}

// Fisher-Yates.
std::vector<uint32_t> PromptOrder::Permutation(const StreamKey& key) const {
  std::vector<uint32_t> order(prompts_.size());
  std::iota(order.begin(), order.end(), 0u);
  RandomStream stream(key);
  for (size_t left = order.size(); left > 1; --left) {
    std::swap(order[left - 1], order[stream.NextBelow(left)]);
  }
  return order;
}

void PromptOrder::Shuffle() {
  order_ = Permutation({.seed = seed_, .group = position_.pass, .step = kPromptOrder});
}

void PromptOrder::TakeBy(std::vector<uint32_t> ranking) {
  OXBOW_CHECK(ranking.size() == prompts_.size()) << "ranking of " << ranking.size();
  ranking_ = std::move(ranking);
}

std::vector<v1::Prompt> PromptOrder::FirstOf(const std::vector<uint32_t>& order, size_t count,
                                             std::set<uint64_t>& taken_ids) const {
  std::vector<v1::Prompt> first;
  for (size_t i = 0; i < order.size() && first.size() < count; ++i) {
    const v1::Prompt& prompt = prompts_[order[i]];
    if (taken_ids.insert(prompt.id()).second) first.push_back(prompt);
  }
  return first;
}

std::vector<v1::Prompt> PromptOrder::Upcoming(size_t count) const {
  std::vector<v1::Prompt> upcoming;
  for (size_t i = position_.taken; i < order_.size() && upcoming.size() < count; ++i) {
    upcoming.push_back(prompts_[order_[i]]);
  }
  return upcoming;
}

std::vector<v1::Prompt> PromptOrder::TakeExtra(LearnerStep step, size_t count,
                                               std::set<uint64_t>& taken_ids) const {
  if (!ranking_.empty()) return FirstOf(ranking_, count, taken_ids);
  return FirstOf(
      Permutation({.seed = seed_, .group = step.value, .sample = kExtra, .step = kPromptOrder}),
      count, taken_ids);
}

v1::Prompt PromptOrder::TakeNext(std::set<uint64_t>& taken_ids) {
  if (!ranking_.empty()) {
    std::vector<v1::Prompt> first = FirstOf(ranking_, 1, taken_ids);
    OXBOW_CHECK(!first.empty()) << "every prompt is taken: " << taken_ids.size();
    return std::move(first[0]);
  }
  for (size_t looked_at = 0; looked_at <= 2 * prompts_.size(); ++looked_at) {
    if (position_.taken == prompts_.size()) {
      position_ = {.pass = position_.pass + 1, .taken = 0};
      Shuffle();
    }
    const v1::Prompt& prompt = prompts_[order_[position_.taken++]];
    if (taken_ids.insert(prompt.id()).second) return prompt;
  }
  OXBOW_CHECK(false) << "every prompt is taken: " << taken_ids.size();
  return {};
}

}  // namespace oxbow::learner
