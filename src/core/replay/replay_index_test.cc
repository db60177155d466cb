// The index against what a plain search over its entries says.
#include "core/replay/replay_index.h"

#include <gtest/gtest.h>

#include "base/philox.h"

namespace oxbow::replay {
namespace {

TEST(ReplayIndexTest, FindsWhatAPlainSearchFinds) {
  const uint64_t seed = 5;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  RandomStream random({.seed = seed});
  const Decay decay{DecayForm::kMultiplicative, 0.9, 0};
  ReplayIndex index(decay);
  std::map<PromptId, EntryFacts> plain;
  for (uint64_t i = 1; i <= 5000; ++i) {
    const PromptId prompt(random.NextBelow(40));
    if (const auto found = plain.find(prompt); found != plain.end()) {
      index.Remove(found->second.id);
      plain.erase(found);
    } else {
      const EntryFacts entry{EntryId(Mix64(i)), prompt, LearnerStep(i / 50),
                             static_cast<double>(random.NextBelow(8)) / 4 - 0.5};
      plain[prompt] = entry;
      index.Add(entry);
    }
    const EntryFacts* lowest = nullptr;
    for (const auto& [_, entry] : plain) {
      if (lowest == nullptr || KeyOf(decay, entry.reward, entry.birth, entry.id) <
                                   KeyOf(decay, lowest->reward, lowest->birth, lowest->id)) {
        lowest = &entry;
      }
    }
    ASSERT_EQ(index.size(), plain.size());
    ASSERT_EQ(index.Lowest() == nullptr, lowest == nullptr);
    if (lowest != nullptr) {
      ASSERT_EQ(*index.Lowest(), *lowest);
    }
    const auto found = plain.find(prompt);
    ASSERT_EQ(index.OfPrompt(prompt) == nullptr, found == plain.end());
    if (found != plain.end()) {
      ASSERT_EQ(*index.Find(found->second.id), found->second);
    }
  }
}

TEST(ReplayIndexTest, SecondEntryOfAPromptDies) {
  ReplayIndex index(Decay{});
  index.Add({EntryId(1), PromptId(1), LearnerStep(0), 1});
  EXPECT_DEATH(index.Add({EntryId(2), PromptId(1), LearnerStep(0), 1}), "prompt twice");
}

}  // namespace
}  // namespace oxbow::replay
