// SPDX-License-Identifier: Apache-2.0
// Model checking of the lease table itself, not of a copy of its rules: two workers, two groups and
// a crash. The test explores, breadth first, every order of events: grants that get lost; results
// that get lost, are repeated or come late; leases that expire; stragglers that are leased a second
// time; steps that are committed and checkpointed; the death of a worker or of the learner.
//
// In every reachable state:
//   - a group is accepted at most once in the committed history,
//   - no result of an ended lease, or of an earlier start of the learner, is accepted,
//   - no result of a live lease is refused,
//   - no accepted result is staler than the budget,
//   - no lease lives longer than its maximum age, though its worker renews it for ever,
//   - a group has at most two live leases, and the run can still be finished (no deadlock).
//
// States are equal if they differ only in lease numbers, in the time of day or in which worker is
// which. So the key of a state names leases by their order within a group, deadlines by how far off
// they are, and workers by their condition.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/lease/lease_table.h"

namespace oxbow::lease {
namespace {

constexpr absl::Duration kLease = absl::Seconds(30);
constexpr int kAgeMax = 2;  // In lease times.

struct Scenario {
  std::string name;
  uint64_t groups = 1;  // U
  uint64_t steps = 1;
  uint64_t staleness = 0;
  uint64_t publish_every = 1;
  int crashes = 1;       // Deaths of a worker or of the learner.
  int failures = 0;      // Failures that workers report.
  size_t in_flight = 2;  // Results on the wire.
  // How much time passes at once. A lease can be renewed beyond its first deadline only if this is
  // less than its time.
  absl::Duration tick = kLease;
};

// The rules, and ways to break them on purpose.
struct Rules {
  bool fences = true;         // A result counts by its lease, not by its group.
  bool expires = true;        // Overdue leases end.
  bool counts_starts = true;  // Lease ids of another start of the learner differ.
  bool honours_bound = true;  // Weights are what the worker says they are.
  bool ages = true;           // A lease that is renewed for ever ends.
  bool keeps_apart = true;    // A failed group goes to the other worker.
};

class SettableClock final : public Clock {
 public:
  absl::Duration Now() const override { return now; }
  absl::Duration now = absl::ZeroDuration();
};

struct Result {
  uint64_t group = 0;
  uint64_t lease = 0;
  uint64_t weights = 0;
  uint64_t epoch = 0;
};

struct Worker {
  bool alive = true;
  bool registered = true;
  std::optional<uint64_t> weights;                    // Steps behind those applied.
  std::optional<std::pair<uint64_t, uint64_t>> held;  // Group and lease.
  uint64_t held_epoch = 0;
};

struct World {
  LeaseTable table;
  absl::Duration now;
  uint64_t epoch = 1;
  uint64_t committed = 0;
  uint64_t durable = 0;  // Committed steps of the newest checkpoint.
  uint64_t published = 0;
  uint64_t planned = 0;   // Steps.
  uint64_t accepted = 0;  // Bit g: group g, in the history that counts.
  std::array<Worker, 2> workers;
  std::vector<Result> wire;
  std::set<uint64_t> ended;  // Leases that expired, failed or were superseded.
  int crashes = 0;
  int failures = 0;
};

const std::string kNames[] = {"a", "b"};

// The part of a world on which its future depends, without numbers that never repeat.
class Key {
 public:
  Key(const World& world, absl::Duration tick) : world_(world), tick_(tick) {
    const LeaseState& state = world.table.state();
    for (const auto& [group, record] : state.groups) {
      Refer(group, record.first.value);
      Refer(group, record.second.value);
    }
    for (const Worker& worker : world.workers) {
      if (worker.held.has_value()) Refer(worker.held->first, worker.held->second);
    }
    for (const Result& result : world.wire) Refer(result.group, result.lease);
    PutWorkers();
    PutWorld();
    PutTable(state);
  }
  std::string text;

 private:
  void Refer(uint64_t group, uint64_t lease) {
    if (lease != 0) leases_[group].insert(lease);
  }
  void Put(uint64_t value) { text.push_back(static_cast<char>(value)); }
  void PutLease(uint64_t group, uint64_t lease) {
    if (lease == 0) return Put(0);
    const std::set<uint64_t>& all = leases_.at(group);
    Put(1 + static_cast<uint64_t>(std::distance(all.begin(), all.find(lease))));
    Put(world_.ended.contains(lease));
  }
  void PutWorkers() {
    std::array<std::string, 2> texts;
    for (size_t w = 0; w < 2; ++w) {
      const Worker& worker = world_.workers[w];
      Put(worker.alive * 2 + worker.registered);
      Put(worker.weights.value_or(99));
      Put(worker.held.has_value() ? 1 + worker.held->first : 0);
      if (worker.held.has_value()) PutLease(worker.held->first, worker.held->second);
      if (worker.held.has_value()) Put(worker.held_epoch);
      texts[w] = std::exchange(text, "");
    }
    swapped_ = texts[1] < texts[0];
    text = texts[swapped_ ? 1 : 0] + "|" + texts[swapped_ ? 0 : 1];
  }
  void PutWorld() {
    for (const uint64_t value :
         {world_.epoch, world_.committed, world_.durable, world_.published, world_.accepted,
          static_cast<uint64_t>(world_.crashes), static_cast<uint64_t>(world_.failures)}) {
      Put(value);
    }
    std::vector<std::array<uint64_t, 4>> wire;  // The order of results has no meaning.
    for (const Result& r : world_.wire) wire.push_back({r.group, r.lease, r.weights, r.epoch});
    std::sort(wire.begin(), wire.end());
    Put(wire.size());
    for (const auto& [group, lease, weights, epoch] : wire) {
      Put(group);
      PutLease(group, lease);
      Put(weights);
      Put(epoch);
    }
  }
  void PutTable(const LeaseState& state) {
    for (const auto& [group, record] : state.groups) {
      Put(100 + group);
      Put(record.accepted * 2 + record.speculated);
      Put(record.failures);
      for (const size_t w : {size_t{swapped_}, size_t{!swapped_}}) {
        const auto& failed = record.failed_by;
        Put(std::find(failed.begin(), failed.end(), kNames[w]) != failed.end());
      }
      for (const LeaseId lease : {record.first, record.second}) {
        PutLease(group, lease.value);
        const auto live = state.live.find(lease.value);
        Put(live == state.live.end() ? 0 : 1 + Ticks(live->second.deadline - world_.now));
        if (live == state.live.end()) continue;
        Put((live->second.grant.worker == kNames[0]) != swapped_);
        if (tick_ < kLease) Put(Ticks(live->second.granted + kAgeMax * kLease - world_.now));
      }
    }
    for (const uint64_t group : state.pending) Put(120 + group);
    for (const auto& [group, until] : state.cooling) Put(140 + 2 * group + (until <= world_.now));
    for (const auto& [since, group] : state.running) Put(160 + group);
  }

  uint64_t Ticks(absl::Duration left) const {
    return left > absl::ZeroDuration() ? static_cast<uint64_t>(left / tick_) : 0;
  }

  const World& world_;
  const absl::Duration tick_;
  bool swapped_ = false;
  std::map<uint64_t, std::set<uint64_t>> leases_;  // By group: leases that a part of it refers to.
};

class Explorer {
 public:
  Explorer(Scenario scenario, Rules rules) : scenario_(std::move(scenario)), rules_(rules) {}

  // Empty if every promise holds; else what broke, and how to get there.
  std::string Run() {
    World start = StartOf(1, 0);
    start.crashes = scenario_.crashes;
    start.failures = scenario_.failures;
    for (Worker& worker : start.workers) worker.weights = 0;
    Visit(std::move(start), 0, "start");
    while (!frontier_.empty() && broken_.empty()) {
      const auto [id, world] = std::move(frontier_.front());
      frontier_.pop_front();
      if (world.committed < scenario_.steps) Expand(id, world);
    }
    if (broken_.empty()) FindDeadlock();
    return broken_;
  }

  size_t states() const { return states_.size(); }
  size_t transitions() const { return edges_.size(); }

 private:
  struct State {
    uint32_t parent;
    const char* event;
    bool done;   // The run is over.
    bool alive;  // A worker lives.
  };

  LeaseTable TableOf(uint64_t epoch, uint64_t first_step) const {
    return LeaseTable({.epoch = Epoch(rules_.counts_starts ? epoch : 1),
                       .first_step = LearnerStep(first_step),
                       .groups_per_step = scenario_.groups,
                       .staleness_max = scenario_.staleness,
                       .lease_time = kLease,
                       .failures_max = 100,
                       .apart = absl::InfiniteDuration(),
                       .backoff_first = absl::Seconds(1),
                       // Every running group is a straggler, so no order of events is left out.
                       .stragglers = {.quantile = 1, .factor = 1, .samples_min = 0, .window = 0},
                       .ages = {.factor = rules_.ages ? 1.0 : 0.0,
                                .floor = kAgeMax,
                                .doublings_max = 0,
                                .samples_min = 0,
                                .window = 0}},
                      clock_, rules_.keeps_apart ? &book_ : nullptr);
  }

  World StartOf(uint64_t epoch, uint64_t step) const {
    World world{.table = TableOf(epoch, step), .now = absl::ZeroDuration(), .epoch = epoch};
    world.committed = world.durable = world.published = world.planned = step;
    PlanAhead(world);
    return world;
  }

  void PlanAhead(World& world) const {
    while (world.planned < scenario_.steps &&
           world.planned <= world.committed + scenario_.staleness)
      world.table.Plan(LearnerStep(world.planned++));
  }

  void Visit(World world, uint32_t parent, const char* event) {
    for (const auto& [group, record] : world.table.state().groups) {
      const uint64_t id = group;
      const auto live =
          std::count_if(world.table.state().live.begin(), world.table.state().live.end(),
                        [&](const auto& item) { return item.second.grant.group.value == id; });
      if (live > 2) Break(parent, event, "more than two leases of a group live");
    }
    for (const auto& [id, live] : world.table.state().live) {
      if (live.deadline - live.granted > kAgeMax * kLease)
        Break(parent, event, "a lease outlives its maximum age");
    }
    const auto [found, fresh] =
        ids_.try_emplace(Key(world, scenario_.tick).text, static_cast<uint32_t>(states_.size()));
    edges_.emplace_back(found->second, parent);
    if (!fresh) return;
    states_.push_back({parent, event, world.committed == scenario_.steps,
                       world.workers[0].alive || world.workers[1].alive});
    frontier_.emplace_back(found->second, std::move(world));
  }

  // Plays `change` on a copy of the world.
  void Try(uint32_t from, const World& world, const char* event,
           const std::function<void(World&)>& change) {
    if (!broken_.empty()) return;
    World next = world;
    clock_.now = next.now;
    here_ = from;
    event_ = event;
    for (size_t w = 0; w < 2; ++w) {
      const Worker& worker = next.workers[w];
      const bool live = worker.alive && worker.registered;
      live ? book_.Join(kNames[w]) : book_.Leave(kNames[w]);
      book_.Asks(kNames[w], live && worker.weights.has_value() && !worker.held.has_value());
    }
    change(next);
    next.now = clock_.now;
    if (broken_.empty()) Visit(std::move(next), from, event);
  }

  void Break(uint32_t from, const char* event, const std::string& what) {
    if (!broken_.empty()) return;
    broken_ = what + ":";
    std::vector<std::string> path = {event};
    for (uint32_t id = from; id != 0; id = states_[id].parent) path.push_back(states_[id].event);
    for (auto step = path.rbegin(); step != path.rend(); ++step) broken_ += "\n  " + *step;
  }

  void Expand(uint32_t id, const World& world) {
    ExpandTime(id, world);
    ExpandLearner(id, world);
    for (size_t w = 0; w < 2; ++w) ExpandWorker(id, world, w);
    for (size_t i = 0; i < world.wire.size(); ++i) {
      Try(id, world, "a result arrives", [&](World& next) {
        const Result result = next.wire[i];
        next.wire.erase(next.wire.begin() + static_cast<std::ptrdiff_t>(i));
        Arrive(next, result);
      });
      Try(id, world, "a result arrives and will arrive again",
          [&](World& next) { Arrive(next, Result(next.wire[i])); });
      Try(id, world, "a result is lost", [&](World& next) {
        next.wire.erase(next.wire.begin() + static_cast<std::ptrdiff_t>(i));
      });
    }
  }

  void ExpandTime(uint32_t id, const World& world) {
    const LeaseState& state = world.table.state();
    if (!state.live.empty() || !state.cooling.empty())
      Try(id, world, "time passes", [&](World&) { clock_.now += scenario_.tick; });
    const bool overdue = std::any_of(state.live.begin(), state.live.end(), [&](const auto& item) {
      return item.second.deadline <= world.now;
    });
    if (!rules_.expires || !overdue) return;
    Try(id, world, "the learner looks for overdue leases", [](World& next) {
      for (const LeaseGrant& lost : next.table.Expire()) next.ended.insert(lost.id.value);
    });
  }

  void ExpandLearner(uint32_t id, const World& world) {
    bool complete = true;
    for (uint64_t g = world.committed * scenario_.groups;
         g < (world.committed + 1) * scenario_.groups; ++g) {
      complete = complete && (world.accepted >> g & 1) != 0;
    }
    if (complete) {
      Try(id, world, "the learner commits a step", [&](World& next) {
        next.table.Commit(LearnerStep(next.committed));
        ++next.committed;
        if (next.committed % scenario_.publish_every == 0) next.published = next.committed;
        PlanAhead(next);
      });
    }
    if (world.durable < world.committed) {
      Try(id, world, "the learner writes a checkpoint",
          [](World& next) { next.durable = next.committed; });
    }
    if (world.crashes == 0) return;
    World resumed = StartOf(world.epoch + 1, world.durable);
    resumed.accepted = world.accepted & ((uint64_t{1} << world.durable * scenario_.groups) - 1);
    resumed.crashes = world.crashes - 1;
    resumed.failures = world.failures;
    resumed.wire = world.wire;
    resumed.workers = world.workers;
    for (Worker& worker : resumed.workers) worker.registered = false;
    Visit(std::move(resumed), id, "the learner dies and resumes");
  }

  void ExpandWorker(uint32_t id, const World& world, size_t w) {
    const Worker& worker = world.workers[w];
    if (!worker.alive) return;
    if (world.crashes > 0) {
      Try(id, world, "a worker dies", [&](World& next) {
        next.workers[w] = {.alive = false, .registered = false, .weights = {}, .held = {}};
        --next.crashes;
      });
    }
    if (worker.held.has_value()) ExpandHolder(id, world, w);
    if (!worker.registered) {
      Try(id, world, "a worker registers again",
          [&](World& next) { next.workers[w] = {.weights = {}, .held = {}}; });
      return;
    }
    if (worker.weights != world.published) {
      Try(id, world, "a worker takes new weights",
          [&](World& next) { next.workers[w].weights = next.published; });
    }
    if (!worker.weights.has_value() || worker.held.has_value()) return;
    const LeaseState& state = world.table.state();
    for (const bool arrives : {true, false}) {
      if (!state.pending.empty() || !state.cooling.empty()) {
        Try(id, world, arrives ? "a group is leased" : "a group is leased and the grant is lost",
            [&](World& next) { Lease(next, w, arrives, /*speculative=*/false); });
      }
      if (state.running.empty()) continue;
      Try(id, world,
          arrives ? "a straggler is leased again" : "a second lease of a straggler is lost",
          [&](World& next) { Lease(next, w, arrives, /*speculative=*/true); });
    }
  }

  void ExpandHolder(uint32_t id, const World& world, size_t w) {
    const auto [group, lease] = *world.workers[w].held;
    if (world.wire.size() < scenario_.in_flight && world.workers[w].weights.has_value()) {
      Try(id, world, "a worker sends its result", [&](World& next) {
        const Worker& worker = next.workers[w];
        next.wire.push_back(
            {worker.held->first, worker.held->second, *worker.weights, worker.held_epoch});
        next.workers[w].held.reset();
      });
    }
    if (!world.workers[w].registered) return;
    if (world.table.Find(LeaseId(lease)) == nullptr) {
      Try(id, world, "a worker hears that its lease has ended",
          [&](World& next) { next.workers[w].held.reset(); });
      return;
    }
    Try(id, world, "a worker renews its lease",
        [&](World& next) { (void)next.table.Renew(kNames[w], LeaseId(lease)); });
    Try(id, world, "a worker's stream breaks",
        [&](World& next) { next.table.Depart(kNames[w], absl::ZeroDuration()); });
    if (world.failures == 0) return;
    Try(id, world, "a worker reports a failure", [&](World& next) {
      (void)next.table.Fail(LeaseId(lease), "model");
      next.ended.insert(lease);
      next.workers[w].held.reset();
      --next.failures;
    });
  }

  void Lease(World& world, size_t w, bool arrives, bool speculative) {
    const LearnerStep weights(*world.workers[w].weights + (rules_.honours_bound ? 0 : 1));
    const auto grant = speculative ? world.table.Speculate(kNames[w], weights)
                                   : world.table.Acquire(kNames[w], weights);
    if (!grant.has_value()) return;
    const auto& failed = world.table.state().groups.at(grant->group.value).failed_by;
    const bool other_failed = std::count(failed.begin(), failed.end(), kNames[1 - w]) > 0;
    if (std::count(failed.begin(), failed.end(), kNames[w]) > 0 && !other_failed &&
        book_.Find(kNames[1 - w]) != nullptr && book_.Find(kNames[1 - w])->asks)
      Break(here_, event_, "a group went back to the worker that failed it");
    if (!arrives) return;
    world.workers[w].held = {grant->group.value, grant->id.value};
    world.workers[w].held_epoch = world.epoch;
  }

  void Arrive(World& world, const Result& result) {
    LeaseId lease(result.lease);
    const auto& groups = world.table.state().groups;
    const auto record = groups.find(result.group);
    if (!rules_.fences && record != groups.end() && record->second.first.value != 0)
      lease = record->second.first;
    const auto& all = world.table.state().live;
    const auto held = all.find(result.lease);
    const bool live = held != all.end() && held->second.deadline > clock_.now;
    std::optional<LeaseGrant> superseded;
    const AcceptOutcome outcome = world.table.Accept(GroupId(result.group), lease, &superseded);
    if (live && outcome != AcceptOutcome::kAccepted)
      Break(here_, event_, "the result of a live lease was refused");
    if (outcome != AcceptOutcome::kAccepted) return;
    if (superseded.has_value()) world.ended.insert(superseded->id.value);
    const uint64_t bit = uint64_t{1} << result.group;
    if ((world.accepted & bit) != 0) Break(here_, event_, "a group was accepted twice");
    if (world.ended.contains(result.lease))
      Break(here_, event_, "the result of an ended lease was accepted");
    if (result.epoch != world.epoch)
      Break(here_, event_, "a result for an earlier start of the learner was accepted");
    if (result.group / scenario_.groups > result.weights + scenario_.staleness)
      Break(here_, event_, "an accepted result is staler than the budget");
    world.accepted |= bit;
  }

  // Walks back from the finished runs. A state that this does not reach can never finish.
  void FindDeadlock() {
    std::vector<std::vector<uint32_t>> before(states_.size());
    for (const auto& [to, from] : edges_) before[to].push_back(from);
    std::vector<bool> finishes(states_.size(), false);
    std::deque<uint32_t> open;
    for (uint32_t id = 0; id < states_.size(); ++id) {
      if (!states_[id].done) continue;
      finishes[id] = true;
      open.push_back(id);
    }
    while (!open.empty()) {
      const uint32_t id = open.front();
      open.pop_front();
      for (const uint32_t from : before[id]) {
        if (finishes[from]) continue;
        finishes[from] = true;
        open.push_back(from);
      }
    }
    for (uint32_t id = 0; id < states_.size(); ++id) {
      if (!finishes[id] && states_[id].alive) return Break(id, "(nothing more)", "a deadlock");
    }
  }

  const Scenario scenario_;
  const Rules rules_;
  SettableClock clock_;
  WorkerBook book_{{}, clock_};
  std::unordered_map<std::string, uint32_t> ids_;
  std::vector<State> states_;
  std::vector<std::pair<uint32_t, uint32_t>> edges_;  // (to, from)
  std::deque<std::pair<uint32_t, World>> frontier_;
  std::string broken_;
  uint32_t here_ = 0;
  const char* event_ = "";
};

const Scenario kOneStep = {.name = "two groups of one step", .groups = 2};
const Scenario kTwoSteps = {.name = "two steps on policy", .steps = 2};
const Scenario kStale = {.name = "two steps, one step stale, weights every second",
                         .steps = 2,
                         .staleness = 1,
                         .publish_every = 2,
                         .in_flight = 1};
const Scenario kFailing = {
    .name = "two groups, a failure", .groups = 2, .failures = 1, .in_flight = 1};
const Scenario kRenewing = {
    .name = "one group, renewed for ever", .in_flight = 1, .tick = kLease / 2};

// Promise: Each group is trained once. Exactly one attempt at a group is accepted, even if leases
// expire and results are repeated or late. No group is lost. The model test walks every order of
// events of two workers, two groups and a crash, and sees broken rules.
// Promise: One bad worker ends no run.
TEST(LeaseModelTest, EveryOrderOfEventsKeepsThePromises) {
  for (const Scenario& scenario : {kOneStep, kTwoSteps, kStale, kFailing, kRenewing}) {
    Explorer explorer(scenario, {});
    EXPECT_EQ(explorer.Run(), "") << scenario.name;
    std::printf("%s: %zu states, %zu transitions\n", scenario.name.c_str(), explorer.states(),
                explorer.transitions());
  }
}

// Promise: Each group is trained once.
TEST(LeaseModelTest, EveryBrokenRuleIsSeen) {
  const auto seen = [](const Scenario& scenario, const Rules& rules) {
    return Explorer(scenario, rules).Run();
  };
  const auto starts = [](const std::string& text, const std::string& with) {
    EXPECT_TRUE(text.starts_with(with)) << text;
  };
  starts(seen(kOneStep, {.fences = false}), "the result of an ended lease was accepted:");
  starts(seen(kOneStep, {.expires = false}), "a deadlock:");
  starts(seen(kTwoSteps, {.counts_starts = false}),
         "a result for an earlier start of the learner was accepted:");
  starts(seen(kTwoSteps, {.honours_bound = false}), "an accepted result is staler");
  starts(seen(kRenewing, {.ages = false}), "a lease outlives its maximum age:");
  starts(seen(kFailing, {.keeps_apart = false}), "a group went back to the worker that failed it:");
}

}  // namespace
}  // namespace oxbow::lease
