// SPDX-License-Identifier: Apache-2.0
// The store against plain lists that follow the written rules, under random operations with
// restarts: the same law for best and for the queues.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "core/replay/draw.h"
#include "services/buffer/replay_store.h"
#include "tests/testing/replay_entries.h"
#include "tests/testing/replay_reference.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::buffer {
namespace {

class ModelRun {
 public:
  ModelRun(uint64_t seed, replay::Decay decay)
      : random_({.seed = seed}), directory_(testing::ScopedDirectory::Memory()) {
    reference_.decay = decay;
    large_in_segments_ = seed % 3 != 0;
    small_in_segments_ = seed % 6 == 0;
    constexpr DrawPolicy kDraws[] = {DrawPolicy::kUniform, DrawPolicy::kPriority,
                                     DrawPolicy::kNewest,  DrawPolicy::kLearnable,
                                     DrawPolicy::kBest,    DrawPolicy::kVaried};
    reference_.policies = Policies(kDraws[seed % std::size(kDraws)]);
    Open();
  }

  void Step() {
    const uint64_t kind = random_.NextBelow(100);
    if (kind < 45) return Offer();
    if (kind < 60) return Draw();
    if (kind < 75) return Advance();
    if (kind < 82) return Read();
    if (kind < 87) return Checkpoint();
    if (kind < 90) return Restore();
    if (kind < 95) return Fence();
    Reopen();
  }

  // Everything that can be seen equals the reference.
  void Compare() {
    const StoreInfo info = store_->Info();
    ASSERT_EQ(info.tables.size(), reference_.policies.size());
    for (size_t i = 0; i < info.tables.size(); ++i) {
      const std::string& name = reference_.policies[i].name;
      const auto entries = store_->List(1000, EntryId(0), name);
      ASSERT_TRUE(entries.ok()) << entries.status();
      ASSERT_NO_FATAL_FAILURE(CompareTable(*entries, reference_.tables[name])) << name;
      ASSERT_EQ(info.tables[i].entries, entries->size()) << name;
      ASSERT_LE(entries->size(), reference_.policies[i].capacity) << name;
      if (i > 0) continue;
      std::set<uint64_t> prompts;
      for (const Entry& entry : *entries) {
        ASSERT_TRUE(prompts.insert(entry.prompt.value).second) << "prompt twice " << entry.prompt;
      }
      ASSERT_EQ(info.entries, entries->size());
      if (!entries->empty()) ComparePercentiles(info, *entries);
      CompareMeans(info, *entries);
    }
    ASSERT_EQ(info.retired, reference_.held.size());
    ASSERT_EQ(info.step.value, reference_.step);
  }

  void CompareTable(const std::vector<Entry>& entries, const std::vector<Plain>& table) {
    ASSERT_EQ(entries.size(), table.size());
    for (size_t i = 0; i < entries.size(); ++i) {
      ASSERT_EQ(entries[i].id.value, table[i].id) << "in this order";
      ASSERT_EQ(entries[i].prompt.value, table[i].prompt);
      ASSERT_EQ(entries[i].value(), table[i].reward);
      ASSERT_EQ(entries[i].failures, table[i].failures);
      ASSERT_EQ(entries[i].tries, table[i].tries);
      ASSERT_EQ(entries[i].tries_failed, table[i].tries_failed);
      ASSERT_EQ(entries[i].birth.value, table[i].birth);
      ASSERT_EQ(entries[i].uses, table[i].uses);
      ASSERT_EQ(entries[i].last_used.value, table[i].last_used);
      ASSERT_NEAR(entries[i].priority, reference_.Priority(table[i], reference_.step), 1e-12);
      ASSERT_EQ(entries[i].header, TestBytes(entries[i].id, 100, 20));
    }
  }

  // A percentile is the smallest priority that at least its share of the entries is at or below.
  static void ComparePercentiles(const StoreInfo& info, const std::vector<Entry>& views) {
    const std::map<double, double> wanted = {
        {.1, info.priority_p10}, {.5, info.priority_p50}, {.9, info.priority_p90}};
    for (const auto& [share, value] : wanted) {
      const auto below = [&views](double limit) {
        return static_cast<double>(std::count_if(
            views.begin(), views.end(), [&](const auto& view) { return view.priority < limit; }));
      };
      const double count = share * static_cast<double>(views.size());
      ASSERT_GE(below(value + 1e-12), count - 1e-9) << share;
      ASSERT_LT(below(value - 1e-12), count) << share;
    }
  }

  // The sums that the store keeps are those that a walk over all entries finds.
  static void CompareMeans(const StoreInfo& info, const std::vector<Entry>& entries) {
    double reward = 0, priority = 0, age = 0, age_max = 0, uses = 0;
    double priority_min = entries.empty() ? 0 : entries[0].priority;
    for (const Entry& entry : entries) {
      const double years = static_cast<double>(replay::AgeAt(info.step, entry.birth));
      reward += entry.value();
      priority += entry.priority;
      priority_min = std::min(priority_min, entry.priority);
      age += years;
      age_max = std::max(age_max, years);
      uses += static_cast<double>(entry.uses);
    }
    const double count = std::max<double>(1, static_cast<double>(entries.size()));
    ASSERT_NEAR(info.reward_mean, reward / count, 1e-9);
    ASSERT_NEAR(info.priority_mean, priority / count, 1e-9);
    ASSERT_NEAR(info.priority_min, priority_min, 1e-9);
    ASSERT_NEAR(info.age_mean_steps, age / count, 1e-9);
    ASSERT_EQ(info.age_max_steps, age_max);
    ASSERT_NEAR(info.uses_mean, uses / count, 1e-9);
  }

  std::string last() const { return last_; }

 private:
  void Open() {
    ReplayStore::Options options;
    options.directory = directory_.path() / "store";
    options.decay = reference_.decay;
    options.tables = reference_.policies;
    options.remembered_steps = kRemembered;
    // Three latents of 1500 bytes are large, and a segment is soon full.
    if (large_in_segments_) options.segments = {.entry_min = 1000, .file = 10'000};
    if (small_in_segments_) options.segments = {.small_min = 50, .batch_min = 500, .file = 5000};
    auto store = ReplayStore::Open(options);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    reference_.Trim();
  }

  // An id always comes with the same content, as it does when a client tries again.
  Plain Make() {
    Plain plain;
    plain.id = Mix64(next_id_++) | 1;
    plain.prompt = random_.NextBelow(12);
    const uint64_t back = random_.NextBelow(20) == 0 ? kRemembered + 3 : random_.NextBelow(4);
    plain.birth = reference_.step + random_.NextBelow(3);
    plain.birth = plain.birth > back ? plain.birth - back : 0;
    // Quarters, with subtractive decay in sixteenths: equal priorities are equal as doubles too.
    plain.reward = random_.NextBelow(2) == 0 ? static_cast<double>(random_.NextBelow(5)) / 4 - 0.25
                                             : random_.NextNormal();
    made_[plain.id] = plain;
    return plain;
  }

  void Offer() {
    last_ = "offer";
    std::vector<Entry> entries;
    std::vector<std::pair<TablePolicy, Plain>> plains;
    for (uint64_t i = random_.NextBelow(5) + 1; i > 0; --i) {
      const bool again = next_id_ > 1 && random_.NextBelow(8) == 0;
      const Plain plain = again ? made_[Mix64(1 + random_.NextBelow(next_id_ - 1)) | 1] : Make();
      const TablePolicy& policy = AnyTable();
      plains.emplace_back(policy, plain);
      const size_t latent_bytes = random_.NextBelow(3) == 0 ? 1500 : 40;
      entries.push_back(TestEntry(plain.id, plain.prompt, plain.birth, plain.reward, latent_bytes));
      entries.back().table = policy.name;
      if (policy.name != kPrompts) continue;
      entries.back().latent_count = 0;
      entries.back().latents.clear();
    }
    const auto report = store_->Offer(epoch_, entries);
    ASSERT_TRUE(report.ok()) << report.status();
    for (size_t i = 0; i < plains.size(); ++i) {
      uint64_t replaced = 0;
      const Outcome expected = reference_.Offer(plains[i].first, plains[i].second, replaced);
      const Outcome outcome = report->results[i].outcome;
      if (expected == Outcome::kDuplicate && outcome == Outcome::kRejectedInvalid) {
        // Forgotten, and refused for its age instead.
        ASSERT_LT(plains[i].second.birth, reference_.forgotten);
        continue;
      }
      ASSERT_EQ(outcome, expected) << "entry " << i << " of " << plains.size();
      ASSERT_EQ(report->results[i].replaced.value, replaced);
    }
  }

  void Draw() {
    last_ = "draw";
    const TablePolicy& policy = AnyTable();
    const uint64_t at = reference_.step + random_.NextBelow(3);
    const uint64_t count = random_.NextBelow(5);
    const uint64_t seed = 5;
    const auto report = store_->Draw(epoch_, LearnerStep(at), count, seed, policy.name);
    ASSERT_TRUE(report.ok()) << report.status();
    std::vector<uint64_t> expected = reference_.Draw(policy, at, count, seed);
    if (policy.holds_draws && !reference_.draws.try_emplace(at, expected).second) {
      expected = reference_.draws[at];
    } else {
      ASSERT_EQ(report->eligible, reference_.Eligible(policy, at).size());
    }
    std::vector<uint64_t> drawn;
    for (const Entry& entry : report->entries) drawn.push_back(entry.id.value);
    ASSERT_EQ(drawn, expected) << policy.name;
    if (reference_.step > 0) {
      const LearnerStep committed(reference_.step - 1);
      ASSERT_TRUE(
          absl::IsOutOfRange(store_->Draw(epoch_, committed, 1, seed, policy.name).status()));
    }
  }

  void Advance() {
    last_ = "advance";
    std::set<uint64_t> used;
    std::set<uint64_t> evict;
    std::map<uint64_t, Regeneration> again;
    for (const auto& [_, ids] : reference_.draws) {
      for (const uint64_t id : ids) {
        if (random_.NextBelow(2) == 0) {
          again[id] = {static_cast<double>(random_.NextBelow(5)) / 4 - 0.25,
                       random_.NextBelow(2) == 0, random_.NextBelow(2) == 0};
        }
        if (random_.NextBelow(3) > 0) used.insert(id);
        if (random_.NextBelow(6) == 0) evict.insert(id);
      }
    }
    for (const auto& [name, table] : reference_.tables) {
      for (const Plain& entry : table) {
        // More than a learner would tell of, so that some entries have a history.
        if (name == replay::kBestTable && random_.NextBelow(2) == 0) {
          again[entry.id] = {entry.reward, random_.NextBelow(2) == 0, random_.NextBelow(2) == 0};
        }
        if (name == replay::kBestTable) continue;
        if (random_.NextBelow(4) == 0) used.insert(entry.id);
        if (random_.NextBelow(6) == 0) evict.insert(entry.id);
      }
    }
    used.insert(999);  // Unknown: ignored.
    const uint64_t jump = random_.NextBelow(15) == 0 ? random_.NextBelow(8) : 0;
    uint64_t committed = reference_.step + jump;
    if (random_.NextBelow(5) == 0 && reference_.step > 0)
      committed = reference_.step - 1;  // Again.
    const auto ids = [](const std::set<uint64_t>& values) {
      std::vector<EntryId> out;
      for (const uint64_t value : values) out.push_back(EntryId(value));
      return out;
    };
    std::vector<Rescored> rescored = {{.entry = EntryId(999), .reward = 1}};  // Ignored, too.
    for (const auto& [id, one] : again) {
      rescored.push_back({.entry = EntryId(id),
                          .reward = one.taken ? std::optional(one.reward) : std::nullopt,
                          .failed = one.failed});
    }
    const uint64_t failures_max = random_.NextBelow(2) == 0 ? random_.NextBelow(3) : 0;
    const auto report = store_->Advance(epoch_, LearnerStep(committed), ids(used), ids(evict),
                                        rescored, failures_max);
    ASSERT_TRUE(report.ok()) << report.status();
    reference_.Advance(committed, used, evict, again, failures_max);
    if (reference_.step > 1) {
      const LearnerStep older(reference_.step - 2);
      ASSERT_TRUE(absl::IsOutOfRange(store_->Advance(epoch_, older, {}, {}).status()));
    }
  }

  void Read() {
    last_ = "read";
    std::set<uint64_t> there;
    for (const auto& [name, table] : reference_.tables) {
      for (const Plain& entry : table) {
        there.insert(entry.id);
        ASSERT_NO_FATAL_FAILURE(ReadOne(EntryId(entry.id), name == kPrompts ? 0 : 3));
      }
    }
    for (const auto& [id, _] : reference_.held) {
      there.insert(id);
      ASSERT_NO_FATAL_FAILURE(ReadOne(EntryId(id), 3));
    }
    for (const auto& [id, _] : reference_.offered) {
      if (there.count(id) > 0) continue;
      ASSERT_TRUE(absl::IsNotFound(store_->Find(EntryId(id)).status())) << id;
    }
  }

  void ReadOne(EntryId id, uint32_t latent_count) {
    const auto entry = store_->Find(id, /*conditioning=*/true);
    ASSERT_TRUE(entry.ok()) << entry.status();
    ASSERT_EQ(entry->conditioning, TestBytes(id, 101, 10));
    ASSERT_EQ(entry->latent_count, latent_count);
    const uint32_t first = static_cast<uint32_t>(random_.NextBelow(latent_count + 1));
    const auto latents = store_->ReadLatents(id, first, latent_count - first);
    ASSERT_TRUE(latents.ok()) << latents.status();
    std::string expected;
    for (uint32_t i = first; i < latent_count; ++i) {
      expected += TestBytes(id, i, entry->latent_bytes);
    }
    ASSERT_EQ(*latents, expected);
  }

  void Checkpoint() {
    last_ = "checkpoint";
    const std::string name(1, static_cast<char>('a' + random_.NextBelow(4)));
    ASSERT_TRUE(store_->Checkpoint(epoch_, name, 2).ok());
    std::erase_if(checkpoints_, [&](const auto& kept) { return kept.first == name; });
    checkpoints_.emplace_back(name, reference_);
    if (checkpoints_.size() > 2) checkpoints_.erase(checkpoints_.begin());
  }

  void Restore() {
    last_ = "restore";
    ASSERT_TRUE(absl::IsNotFound(store_->Restore(epoch_, "never")));
    const std::vector<TablePolicy> policies = reference_.policies;
    if (random_.NextBelow(3) == 0) {
      const uint64_t to = 1 + random_.NextBelow(reference_.step + 3);
      ASSERT_TRUE(store_->Restore(epoch_, "", {.step = LearnerStep(to)}).ok());
      reference_.Rewind(to);
    } else if (checkpoints_.empty() || random_.NextBelow(6) == 0) {
      ASSERT_TRUE(store_->Restore(epoch_, "").ok());
      reference_ = Reference{.decay = reference_.decay};
    } else {
      const auto& [name, state] = checkpoints_[random_.NextBelow(checkpoints_.size())];
      const absl::Status status = store_->Restore(epoch_, name);
      ASSERT_TRUE(status.ok()) << status;
      reference_ = state;
    }
    reference_.policies = policies;
    reference_.Trim();
  }

  void Fence() {
    last_ = "fence";
    const Epoch older = epoch_;
    ++epoch_;
    ASSERT_TRUE(store_->Advance(epoch_, LearnerStep(reference_.step), {}, {}).ok());
    reference_.Advance(reference_.step, {}, {});
    if (random_.NextBelow(2) == 0) Reopen();
    const Entry entry = TestEntry(7'777'777, 1, reference_.step, 1e9);
    ASSERT_TRUE(absl::IsAborted(store_->Offer(older, {entry}).status()));
    ASSERT_TRUE(absl::IsAborted(store_->Draw(older, LearnerStep(99'999), 1, 1).status()));
    ASSERT_TRUE(absl::IsAborted(store_->Advance(older, LearnerStep(99'999), {}, {}).status()));
    ASSERT_TRUE(absl::IsAborted(store_->Checkpoint(older, "x", 1)));
    ASSERT_TRUE(absl::IsAborted(store_->Restore(older, "")));
  }

  void Reopen() {
    last_ = "reopen";
    store_.reset();
    for (TablePolicy& policy : reference_.policies) policy.capacity = 4 + random_.NextBelow(5);
    Open();
  }

  // Best half of the time.
  const TablePolicy& AnyTable() {
    return reference_.policies[random_.NextBelow(2) == 0 ? 0 : 1 + random_.NextBelow(2)];
  }

  bool large_in_segments_ = false;
  bool small_in_segments_ = false;  // Where their batch has much already.
  RandomStream random_;
  const testing::ScopedDirectory directory_;
  std::unique_ptr<ReplayStore> store_;
  Reference reference_;
  std::vector<std::pair<std::string, Reference>> checkpoints_;  // Oldest first.
  Epoch epoch_{1};
  uint64_t next_id_ = 1;
  std::map<uint64_t, Plain> made_;
  std::string last_ = "open";
};

class ReplayModelTest : public ::testing::TestWithParam<std::pair<uint64_t, replay::Decay>> {};

// Promise: One entry per prompt. At every instant each prompt has at most one live entry and the
// buffer at most `replay.capacity`, under random operations, reopenings and restores too.
// Promise: A success that new tails destroy leaves.
TEST_P(ReplayModelTest, StoreFollowsTheRulesUnderRandomOperations) {
  const auto [seed, decay] = GetParam();
  ModelRun run(seed, decay);
  for (int operation = 0; operation < 1000; ++operation) {
    run.Step();
    if (!::testing::Test::HasFatalFailure()) run.Compare();
    if (::testing::Test::HasFatalFailure()) {
      FAIL() << "seed " << seed << ", operation " << operation << ": " << run.last();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Seeds, ReplayModelTest,
    ::testing::Values(std::pair(1u, replay::Decay{replay::DecayForm::kMultiplicative, 0.9, 0}),
                      std::pair(2u, replay::Decay{replay::DecayForm::kMultiplicative, 0.98, -0.5}),
                      std::pair(3u, replay::Decay{replay::DecayForm::kSubtractive, 0.0625, 0}),
                      std::pair(4u, replay::Decay{replay::DecayForm::kMultiplicative, 0.9, 0}),
                      std::pair(7u, replay::Decay{replay::DecayForm::kMultiplicative, 0.98, 0}),
                      std::pair(5u, replay::Decay{replay::DecayForm::kMultiplicative, 0.9, -0.5})));

}  // namespace
}  // namespace oxbow::buffer
