// Queues of the store against plain lists, under random operations with restarts and checkpoints.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "core/replay/draw.h"
#include "services/buffer/replay_entries.h"
#include "services/buffer/replay_store.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::buffer {
namespace {

using replay::DrawPolicy;
using replay::InsertPolicy;
using replay::TablePolicy;

constexpr char kPrompts[] = "prompts";
constexpr char kGroups[] = "groups";

std::vector<TablePolicy> Policies() {
  return {{.name = kPrompts, .insert = InsertPolicy::kAppendPerPrompt, .capacity = 5},
          {.name = kGroups, .draw = DrawPolicy::kUniform, .capacity = 7, .age_max = 4}};
}

struct Plain {
  uint64_t id = 0, prompt = 0, birth = 0, uses = 0;
  bool operator==(const Plain&) const = default;
};

// The rules, one sentence each.
struct Reference {
  uint64_t step = 0;
  std::map<std::string, std::vector<Plain>> tables = {{kPrompts, {}}, {kGroups, {}}};
  std::set<uint64_t> offered;

  Outcome Offer(const TablePolicy& policy, const Plain& entry, uint64_t& replaced) {
    if (!offered.insert(entry.id).second) return Outcome::kDuplicate;
    std::vector<Plain>& table = tables[policy.name];
    if (policy.insert == InsertPolicy::kAppendPerPrompt) {
      const auto same = std::find_if(table.begin(), table.end(),
                                     [&](const Plain& e) { return e.prompt == entry.prompt; });
      if (same != table.end()) {
        replaced = same->id;
        table.erase(same);
      }
    }
    table.push_back(entry);
    if (table.size() > policy.capacity) table.erase(table.begin());
    return replaced > 0 ? Outcome::kReplaced : Outcome::kInserted;
  }

  void Advance(const std::set<uint64_t>& used, const std::set<uint64_t>& evict) {
    ++step;
    for (const TablePolicy& policy : Policies()) {
      std::vector<Plain>& table = tables[policy.name];
      for (Plain& entry : table) entry.uses += used.count(entry.id);
      std::erase_if(table, [&](const Plain& entry) { return evict.count(entry.id) > 0; });
      while (policy.age_max > 0 && !table.empty() && step > table[0].birth + policy.age_max) {
        table.erase(table.begin());
      }
    }
  }
};

class QueueRun {
 public:
  explicit QueueRun(uint64_t seed)
      : random_({.seed = seed}), directory_(testing::ScopedDirectory::Memory()) {
    Open();
  }

  void Step() {
    const uint64_t kind = random_.NextBelow(100);
    if (kind < 50) return Offer();
    if (kind < 65) return Draw();
    if (kind < 85) return Advance();
    if (kind < 90) return Checkpoint();
    if (kind < 93) return Restore();
    Open();
  }

  void Compare() {
    for (const TablePolicy& policy : Policies()) {
      const auto views = store_->ListQueued(policy.name, 1000, EntryId(0));
      ASSERT_TRUE(views.ok()) << views.status();
      std::vector<Plain> seen;
      for (const EntryView& view : *views) {
        seen.push_back({view.facts.id.value, view.facts.prompt.value, view.facts.birth.value,
                        view.facts.uses});
        ASSERT_EQ(view.header, TestBytes(view.facts.id, 100, 20));
        const auto latents = store_->ReadLatents(view.facts.id, 0, view.extent.latents);
        ASSERT_TRUE(latents.ok()) << latents.status();
        ASSERT_EQ(latents->size(), policy.name == kPrompts ? 0u : 120u);
      }
      ASSERT_TRUE(seen == reference_.tables[policy.name]) << policy.name;
    }
    const StoreInfo info = store_->Info();
    ASSERT_EQ(info.tables.size(), 3u);
    ASSERT_EQ(info.tables[1].entries, reference_.tables[kPrompts].size());
    ASSERT_EQ(info.tables[2].entries, reference_.tables[kGroups].size());
    ASSERT_EQ(info.entries, 0u) << "queues are not best";
  }

 private:
  void Open() {
    store_.reset();
    auto store = ReplayStore::Open(
        {.directory = directory_.path() / "store", .capacity = 2, .queues = Policies()});
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }

  void Offer() {
    const TablePolicy policy = Policies()[random_.NextBelow(2)];
    std::vector<NewEntry> entries;
    std::vector<Outcome> expected;
    std::vector<uint64_t> replaced;
    for (uint64_t i = random_.NextBelow(4) + 1; i > 0; --i) {
      Plain plain{
          .id = Mix64(next_id_++), .prompt = random_.NextBelow(9), .birth = reference_.step};
      if (!entries.empty() && random_.NextBelow(6) == 0) plain.id = entries[0].facts.id.value;
      entries.push_back(TestEntry(plain.id, plain.prompt, plain.birth, 0.5));
      entries.back().table = policy.name;
      if (policy.name == kPrompts) {
        entries.back().latent_count = 0;
        entries.back().latents.clear();
      }
      replaced.push_back(0);
      expected.push_back(reference_.Offer(policy, plain, replaced.back()));
    }
    // Twice: what a client does whose answer was lost.
    const auto report = store_->Offer(Epoch(1), entries);
    const auto again = store_->Offer(Epoch(1), entries);
    ASSERT_TRUE(report.ok() && again.ok()) << report.status() << again.status();
    for (size_t i = 0; i < entries.size(); ++i) {
      ASSERT_EQ(report->results[i].outcome, expected[i]);
      ASSERT_EQ(report->results[i].replaced.value, replaced[i]);
      ASSERT_EQ(again->results[i].outcome, Outcome::kDuplicate);
    }
  }

  void Draw() {
    const uint64_t at = reference_.step + random_.NextBelow(2);
    const uint64_t count = random_.NextBelow(6);
    for (const TablePolicy& policy : Policies()) {
      std::vector<EntryId> expected;
      for (const Plain& entry : reference_.tables[policy.name]) {
        if (entry.birth < at) expected.push_back(EntryId(entry.id));
      }
      const size_t eligible = expected.size();
      if (policy.draw == DrawPolicy::kUniform) {
        expected = replay::DrawUniform(expected, count, 5, LearnerStep(at));
      } else {
        expected.resize(std::min<size_t>(count, eligible));
      }
      const auto drawn = store_->DrawQueued(policy.name, Epoch(1), LearnerStep(at), count, 5);
      ASSERT_TRUE(drawn.ok()) << drawn.status();
      ASSERT_EQ(drawn->eligible, eligible);
      std::vector<EntryId> ids;
      for (const EntryView& view : drawn->entries) ids.push_back(view.facts.id);
      ASSERT_TRUE(ids == expected) << policy.name;
    }
  }

  void Advance() {
    std::set<uint64_t> used;
    std::set<uint64_t> evict;
    for (const auto& [_, table] : reference_.tables) {
      for (const Plain& entry : table) {
        if (random_.NextBelow(4) == 0) used.insert(entry.id);
        if (random_.NextBelow(6) == 0) evict.insert(entry.id);
      }
    }
    const auto ids = [](const std::set<uint64_t>& values) {
      std::vector<EntryId> out;
      for (const uint64_t value : values) out.push_back(EntryId(value));
      return out;
    };
    const auto report =
        store_->Advance(Epoch(1), LearnerStep(reference_.step), ids(used), ids(evict));
    ASSERT_TRUE(report.ok()) << report.status();
    reference_.Advance(used, evict);
  }

  void Checkpoint() {
    ASSERT_TRUE(store_->Checkpoint(Epoch(1), "kept", 1).ok());
    kept_ = reference_;
  }

  void Restore() {
    if (!kept_.has_value()) return;
    ASSERT_TRUE(store_->Restore(Epoch(1), "kept").ok());
    reference_ = *kept_;
  }

  RandomStream random_;
  const testing::ScopedDirectory directory_;
  std::unique_ptr<ReplayStore> store_;
  Reference reference_;
  std::optional<Reference> kept_;
  uint64_t next_id_ = 1;
};

class QueueModelTest : public ::testing::TestWithParam<uint64_t> {};

TEST_P(QueueModelTest, QueuesFollowTheirPoliciesUnderRandomOperations) {
  QueueRun run(GetParam());
  for (int operation = 0; operation < 400; ++operation) {
    run.Step();
    if (!::testing::Test::HasFatalFailure()) run.Compare();
    if (::testing::Test::HasFatalFailure()) {
      FAIL() << "seed " << GetParam() << ", operation " << operation;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, QueueModelTest, ::testing::Values(1, 2));

TEST(QueueTest, UndeclaredTablesAreRefusedAndEmptiedAtTheStart) {
  const testing::ScopedDirectory directory{testing::ScopedDirectory::Memory()};
  NewEntry entry = TestEntry(7, 1, 0, 0.5);
  entry.table = kGroups;
  {
    const auto store =
        ReplayStore::Open({.directory = directory.path(), .queues = Policies()}).value();
    EXPECT_EQ(store->Offer(Epoch(1), {&entry, 1})->results[0].outcome, Outcome::kInserted);
    entry.facts.id = EntryId(8);
    entry.table = "unheard";
    const OfferResult result = store->Offer(Epoch(1), {&entry, 1})->results[0];
    EXPECT_EQ(result.outcome, Outcome::kRejectedInvalid);
    EXPECT_EQ(result.error, "table is not declared in the buffer's config: unheard");
    EXPECT_TRUE(
        absl::IsNotFound(store->DrawQueued("unheard", Epoch(1), LearnerStep(1), 1, 1).status()));
  }
  {
    const auto without = ReplayStore::Open({.directory = directory.path()}).value();
    EXPECT_TRUE(absl::IsNotFound(without->Find(EntryId(7)).status()));
  }
  const auto again =
      ReplayStore::Open({.directory = directory.path(), .queues = Policies()}).value();
  EXPECT_EQ(again->Info().tables[2].entries, 0u);
}

TEST(QueueTest, PoliciesThatAreNoQueueAreRefused) {
  const testing::ScopedDirectory directory{testing::ScopedDirectory::Memory()};
  for (const TablePolicy& policy : {TablePolicy{.name = "best"}, TablePolicy{.name = ""},
                                    TablePolicy{.name = "x", .insert = InsertPolicy::kBetter},
                                    TablePolicy{.name = "x", .capacity = 0}}) {
    const auto store = ReplayStore::Open({.directory = directory.path(), .queues = {policy}});
    EXPECT_TRUE(absl::IsInvalidArgument(store.status())) << store.status();
  }
}

}  // namespace
}  // namespace oxbow::buffer
