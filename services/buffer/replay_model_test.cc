// The store against a plain map that follows the written rules, under random operations with
// restarts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "core/replay/draw.h"
#include "services/buffer/replay_entries.h"
#include "services/buffer/replay_store.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::buffer {
namespace {

constexpr uint64_t kRemembered = 20;
constexpr uint64_t kUsesMax = 3;
constexpr uint64_t kAgeMax = 12;

struct Plain {
  uint64_t id = 0, prompt = 0, birth = 0, uses = 0, last_used = 0;
  double reward = 0;
};

// The rules, one sentence each, without any of the store's structures.
struct Reference {
  replay::Decay decay;
  replay::DrawPolicy draw = replay::DrawPolicy::kUniform;
  uint64_t capacity = 0;
  uint64_t step = 0;
  std::map<uint64_t, Plain> live;                   // By id.
  std::map<uint64_t, Plain> held;                   // Dropped while drawn.
  std::set<uint64_t> offered;                       // Ever decided.
  std::map<uint64_t, std::vector<uint64_t>> draws;  // Of steps that did not commit.

  double Priority(const Plain& entry, uint64_t now) const {
    const uint64_t age = now > entry.birth ? now - entry.birth : 0;
    if (decay.form == replay::DecayForm::kSubtractive) {
      return entry.reward - decay.rate * static_cast<double>(age);
    }
    if (age == 0 || entry.reward <= decay.floor) return entry.reward;
    return decay.floor +
           std::pow(decay.rate, static_cast<double>(age)) * (entry.reward - decay.floor);
  }

  // The lowest once all are born; equal ones by id.
  uint64_t Lowest() const {
    uint64_t now = step;
    for (const auto& [_, entry] : live) now = std::max(now, entry.birth);
    const Plain* lowest = nullptr;
    for (const auto& [_, entry] : live) {
      if (lowest == nullptr || Priority(entry, now) < Priority(*lowest, now) - 1e-12)
        lowest = &entry;
    }
    return lowest->id;
  }

  bool Drawn(uint64_t id) const {
    return std::any_of(draws.begin(), draws.end(), [id](const auto& draw) {
      return std::count(draw.second.begin(), draw.second.end(), id) > 0;
    });
  }

  void Drop(uint64_t id) {
    if (Drawn(id)) held[id] = live.at(id);
    live.erase(id);
  }

  Outcome Offer(const Plain& entry, uint64_t& replaced) {
    if (offered.count(entry.id) > 0) return Outcome::kDuplicate;
    if (step > entry.birth && step - entry.birth > kRemembered) return Outcome::kRejectedInvalid;
    offered.insert(entry.id);
    std::optional<uint64_t> rival;
    for (const auto& [id, other] : live) {
      if (other.prompt == entry.prompt) rival = id;
    }
    if (!rival.has_value() && live.size() >= capacity) rival = Lowest();
    if (rival.has_value()) {
      if (!(entry.reward > Priority(live.at(*rival), step))) return Outcome::kRejectedLower;
      Drop(*rival);
      replaced = *rival;
    }
    live[entry.id] = entry;
    return rival.has_value() ? Outcome::kReplaced : Outcome::kInserted;
  }

  std::vector<EntryId> Eligible(uint64_t at) const {
    std::vector<EntryId> ids;
    for (const auto& [id, entry] : live) {
      if (entry.birth < at && entry.uses < kUsesMax && at - entry.birth <= kAgeMax) {
        ids.push_back(EntryId(id));
      }
    }
    return ids;
  }

  std::vector<EntryId> Chosen(uint64_t at, uint64_t count, uint64_t seed) const {
    if (draw == replay::DrawPolicy::kUniform) {
      return replay::DrawUniform(Eligible(at), count, seed, LearnerStep(at));
    }
    std::vector<replay::WeightedEntry> entries;
    for (const EntryId id : Eligible(at)) {
      entries.push_back({id, Priority(live.at(id.value), at) - decay.floor});
    }
    return replay::DrawWeighted(entries, count, seed, LearnerStep(at));
  }

  void Advance(uint64_t committed, const std::set<uint64_t>& used,
               const std::set<uint64_t>& evict) {
    if (committed + 1 == step) return;
    for (auto* entries : {&live, &held}) {
      for (auto& [id, entry] : *entries) {
        if (used.count(id) == 0) continue;
        ++entry.uses;
        entry.last_used = committed;
      }
    }
    step = committed + 1;
    std::erase_if(draws, [&](const auto& draw) { return draw.first <= committed; });
    std::erase_if(held, [&](const auto& entry) { return !Drawn(entry.first); });
    for (const uint64_t id : evict) {
      if (live.count(id) > 0) Drop(id);
    }
  }

  void Trim() {
    while (live.size() > capacity) Drop(Lowest());
  }
};

class ModelRun {
 public:
  ModelRun(uint64_t seed, replay::Decay decay)
      : random_({.seed = seed}), directory_(testing::ScopedDirectory::Memory()) {
    reference_.decay = decay;
    if (seed % 2 == 1) reference_.draw = replay::DrawPolicy::kPriority;
    reference_.capacity = 7;
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
    const auto views = store_->List(1000, EntryId(0));
    ASSERT_TRUE(views.ok()) << views.status();
    ASSERT_EQ(views->size(), reference_.live.size());
    std::set<uint64_t> prompts;
    for (const EntryView& view : *views) {
      ASSERT_EQ(reference_.live.count(view.facts.id.value), 1u) << view.facts.id;
      const Plain& plain = reference_.live.at(view.facts.id.value);
      ASSERT_TRUE(prompts.insert(plain.prompt).second) << "prompt twice " << plain.prompt;
      ASSERT_EQ(view.facts.prompt.value, plain.prompt);
      ASSERT_EQ(view.facts.reward, plain.reward);
      ASSERT_EQ(view.facts.birth.value, plain.birth);
      ASSERT_EQ(view.facts.uses, plain.uses);
      ASSERT_EQ(view.facts.last_used.value, plain.last_used);
      ASSERT_NEAR(view.priority, reference_.Priority(plain, reference_.step), 1e-12);
      ASSERT_EQ(view.header, TestBytes(view.facts.id, 100, 20));
    }
    const StoreInfo info = store_->Info();
    ASSERT_EQ(info.entries, reference_.live.size());
    ASSERT_EQ(info.retired, reference_.held.size());
    ASSERT_EQ(info.step.value, reference_.step);
    ASSERT_LE(info.entries, reference_.capacity);
    if (!views->empty()) ComparePercentiles(info, *views);
  }

  // A percentile is the smallest priority that at least its share of the entries is at or below.
  static void ComparePercentiles(const StoreInfo& info, const std::vector<EntryView>& views) {
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

  std::string last() const { return last_; }

 private:
  void Open() {
    ReplayStore::Options options;
    options.directory = directory_.path() / "store";
    options.capacity = reference_.capacity;
    options.decay = reference_.decay;
    options.limits = {.uses_max = kUsesMax, .age_max = kAgeMax};
    options.draw = reference_.draw;
    options.remembered_steps = kRemembered;
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
    std::vector<NewEntry> entries;
    std::vector<Plain> plains;
    for (uint64_t i = random_.NextBelow(5) + 1; i > 0; --i) {
      const bool again = next_id_ > 1 && random_.NextBelow(8) == 0;
      const Plain plain = again ? made_[Mix64(1 + random_.NextBelow(next_id_ - 1)) | 1] : Make();
      plains.push_back(plain);
      const size_t latent_bytes = random_.NextBelow(3) == 0 ? 1500 : 40;
      entries.push_back(TestEntry(plain.id, plain.prompt, plain.birth, plain.reward, latent_bytes));
    }
    const auto report = store_->Offer(epoch_, entries);
    ASSERT_TRUE(report.ok()) << report.status();
    for (size_t i = 0; i < plains.size(); ++i) {
      uint64_t replaced = 0;
      const Outcome expected = reference_.Offer(plains[i], replaced);
      const Outcome outcome = report->results[i].outcome;
      if (expected == Outcome::kDuplicate && outcome == Outcome::kRejectedInvalid) {
        // Forgotten, and refused for its age instead.
        ASSERT_GT(reference_.step, plains[i].birth + kRemembered);
        continue;
      }
      ASSERT_EQ(outcome, expected) << "entry " << i << " of " << plains.size();
      ASSERT_EQ(report->results[i].replaced.value, replaced);
    }
  }

  void Draw() {
    last_ = "draw";
    const uint64_t at = reference_.step + random_.NextBelow(3);
    const uint64_t count = random_.NextBelow(5);
    const uint64_t seed = 5;
    const auto report = store_->Draw(epoch_, LearnerStep(at), count, seed);
    ASSERT_TRUE(report.ok()) << report.status();
    if (reference_.draws.count(at) == 0) {
      ASSERT_EQ(report->eligible, reference_.Eligible(at).size());
      std::vector<uint64_t> ids;
      for (const EntryId id : reference_.Chosen(at, count, seed)) ids.push_back(id.value);
      reference_.draws[at] = ids;
    }
    std::vector<uint64_t> drawn;
    for (const EntryView& view : report->entries) drawn.push_back(view.facts.id.value);
    ASSERT_EQ(drawn, reference_.draws[at]);
    if (reference_.step > 0) {
      const LearnerStep committed(reference_.step - 1);
      ASSERT_TRUE(absl::IsAborted(store_->Draw(epoch_, committed, 1, seed).status()));
    }
  }

  void Advance() {
    last_ = "advance";
    std::set<uint64_t> used;
    std::set<uint64_t> evict;
    for (const auto& [_, ids] : reference_.draws) {
      for (const uint64_t id : ids) {
        if (random_.NextBelow(3) > 0) used.insert(id);
        if (random_.NextBelow(6) == 0) evict.insert(id);
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
    const auto report = store_->Advance(epoch_, LearnerStep(committed), ids(used), ids(evict));
    ASSERT_TRUE(report.ok()) << report.status();
    reference_.Advance(committed, used, evict);
    if (reference_.step > 1) {
      const LearnerStep older(reference_.step - 2);
      ASSERT_TRUE(absl::IsAborted(store_->Advance(epoch_, older, {}, {}).status()));
    }
  }

  void Read() {
    last_ = "read";
    for (const auto* entries : {&reference_.live, &reference_.held}) {
      for (const auto& [id, _] : *entries) {
        const auto view = store_->Find(EntryId(id));
        ASSERT_TRUE(view.ok()) << view.status();
        ASSERT_EQ(view->conditioning, TestBytes(EntryId(id), 101, 10));
        const uint32_t first = static_cast<uint32_t>(random_.NextBelow(3));
        const auto latents = store_->ReadLatents(EntryId(id), first, 3 - first);
        ASSERT_TRUE(latents.ok()) << latents.status();
        std::string expected;
        for (uint32_t i = first; i < 3; ++i) {
          expected += TestBytes(EntryId(id), i, view->extent.latent_bytes);
        }
        ASSERT_EQ(*latents, expected);
      }
    }
    for (const uint64_t id : reference_.offered) {
      if (reference_.live.count(id) > 0 || reference_.held.count(id) > 0) continue;
      ASSERT_TRUE(absl::IsNotFound(store_->Find(EntryId(id)).status())) << id;
    }
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
    const uint64_t capacity = reference_.capacity;
    if (checkpoints_.empty() || random_.NextBelow(6) == 0) {
      ASSERT_TRUE(store_->Restore(epoch_, "").ok());
      reference_ =
          Reference{.decay = reference_.decay, .draw = reference_.draw, .capacity = capacity};
    } else {
      const auto& [name, state] = checkpoints_[random_.NextBelow(checkpoints_.size())];
      const absl::Status status = store_->Restore(epoch_, name);
      ASSERT_TRUE(status.ok()) << status;
      reference_ = state;
      reference_.capacity = capacity;
    }
    reference_.Trim();
  }

  void Fence() {
    last_ = "fence";
    const Epoch older = epoch_;
    ++epoch_;
    ASSERT_TRUE(store_->Advance(epoch_, LearnerStep(reference_.step), {}, {}).ok());
    reference_.Advance(reference_.step, {}, {});
    if (random_.NextBelow(2) == 0) Reopen();
    const NewEntry entry = TestEntry(7'777'777, 1, reference_.step, 1e9);
    ASSERT_TRUE(absl::IsAborted(store_->Offer(older, {&entry, 1}).status()));
    ASSERT_TRUE(absl::IsAborted(store_->Draw(older, LearnerStep(99'999), 1, 1).status()));
    ASSERT_TRUE(absl::IsAborted(store_->Advance(older, LearnerStep(99'999), {}, {}).status()));
    ASSERT_TRUE(absl::IsAborted(store_->Checkpoint(older, "x", 1)));
    ASSERT_TRUE(absl::IsAborted(store_->Restore(older, "")));
  }

  void Reopen() {
    last_ = "reopen";
    store_.reset();
    reference_.capacity = 5 + random_.NextBelow(4);
    Open();
  }

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
                      std::pair(5u, replay::Decay{replay::DecayForm::kMultiplicative, 0.9, -0.5})));

}  // namespace
}  // namespace oxbow::buffer
