// SPDX-License-Identifier: Apache-2.0
// Laws of the simulated system: closed forms where there are some, bounds and balances elsewhere.
#include "simulate/simulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/philox.h"
#include "simulate/run_model.h"

namespace oxbow::simulate {
namespace {

Outcome Simulated(const RunModel& model) {
  const auto outcome = Simulate(model, 20'000'000);
  if (!outcome.ok()) ADD_FAILURE() << outcome.status();
  return outcome.ok() ? *outcome : Outcome{};
}

// Every part takes another time, so that a forgotten part changes the sum.
RunModel Distinct() {
  RunModel model{.steps = 7, .workers = 1, .groups_per_step = 5, .groups_in_flight = 5};
  model.weight_fanout = 4;
  model.checkpoint_every = 0;
  model.costs = {.batch_s = 0.3,
                 .group_s = 0.7,
                 .apply_s = 0.11,
                 .reward_s = 0,
                 .reward_latency_s = 0.23,
                 .update_s = 1.3,
                 .update_group_s = 0.17,
                 .publish_s = 0.053,
                 .plan_s = 0.029,
                 .finish_s = 0.4,
                 .latency_s = 0.013,
                 .weight_bytes = 2e6,
                 .group_bytes = 3e5,
                 .learner_link_bytes_per_s = 1e7,
                 .worker_link_bytes_per_s = 2e7,
                 .message_s = 0};
  return model;
}

void ExpectBalanced(const Outcome& o) {
  const LeaseCounts& l = o.leases;
  EXPECT_EQ(l.granted, l.accepted + l.failed + l.expired + l.superseded + l.dropped + l.in_flight);
  const LearnerTime& t = o.learner;
  EXPECT_NEAR(t.update_s + t.lost_s + t.wait_rollouts_s + t.wait_weights_s + t.publish_s +
                  t.other_s + t.down_s,
              o.wall_s, 1e-6 * o.wall_s);
  EXPECT_NEAR(o.useful_s + o.discarded.total_s() + o.in_flight_s, o.sampling_s,
              1e-6 * o.sampling_s);
}

TEST(SimulationTest, OneOnPolicyWorkerTakesTheSumOfTheParts) {
  const RunModel model = Distinct();
  const Costs& c = model.costs;
  // The loop waits for the publication; planning overlaps the fetch; then the report.
  const double fetched = 2 * c.latency_s + 2e6 / 1e7 + c.apply_s + c.latency_s;
  const double produced = c.latency_s + c.batch_s + 5 * c.group_s + 2 * c.latency_s +
                          c.reward_latency_s + 3e5 / 2e7 + 5 * 3e5 / 1e7 + c.latency_s;
  const double step =
      c.publish_s + std::max(fetched, c.plan_s) + produced + c.update_s + 5 * c.update_group_s;
  const Outcome outcome = Simulated(model);
  EXPECT_NEAR(outcome.step_s(), step, 1e-9);
  EXPECT_NEAR(outcome.learner.update_s, 7 * (1.3 + 5 * 0.17), 1e-9);
  EXPECT_EQ(outcome.staleness_max, 0u);
  EXPECT_EQ(outcome.leases.granted, 35u);
  EXPECT_EQ(outcome.discarded.total_s(), 0);
  EXPECT_DOUBLE_EQ(outcome.learner_egress_bytes, 7 * 2e6);
  EXPECT_DOUBLE_EQ(outcome.ingest_bytes, 35 * 3e5);
  ExpectBalanced(outcome);
}

TEST(SimulationTest, TheLearnerSendsTheConditioningThatIsNewToTheFleet) {
  RunModel model = Distinct();
  const double without = Simulated(model).learner_egress_bytes;
  model.costs.conditioning_bytes = 1e6;
  const Outcome all = Simulated(model);
  EXPECT_DOUBLE_EQ(all.learner_egress_bytes,
                   without + 1e6 * static_cast<double>(all.leases.granted));
  model.costs.conditioning_new_share = 0.25;
  EXPECT_DOUBLE_EQ(Simulated(model).learner_egress_bytes,
                   without + 0.25e6 * static_cast<double>(all.leases.granted));
}

TEST(SimulationTest, TheLearnerWaitsForWeightsUntilTheFirstGroupRuns) {
  RunModel model = Distinct();
  model.costs.apply_s = 2;
  const Costs& c = model.costs;
  const double fetched = 2 * c.latency_s + 2e6 / 1e7 + c.apply_s + c.latency_s;
  const double sampled = c.latency_s + c.batch_s + 5 * c.group_s + 2 * c.latency_s +
                         c.reward_latency_s + 3e5 / 2e7 + 5 * 3e5 / 1e7 + c.latency_s;
  const Outcome outcome = Simulated(model);
  EXPECT_NEAR(outcome.learner.wait_weights_s, 7 * (fetched - c.plan_s - c.finish_s), 1e-9);
  EXPECT_NEAR(outcome.learner.wait_rollouts_s, 7 * sampled, 1e-9);
}

TEST(SimulationTest, OneLeaseAtATimePaysTheRoundTripForEachGroup) {
  RunModel model = Distinct();
  model.groups_in_flight = 1;
  const Costs& c = model.costs;
  const double group = c.latency_s + c.batch_s + c.group_s + 2 * c.latency_s + c.reward_latency_s +
                       3e5 / 2e7 + 3e5 / 1e7 + c.latency_s;
  const double step = c.publish_s + 3 * c.latency_s + 2e6 / 1e7 + c.apply_s + 5 * group +
                      4 * 2 * c.latency_s + c.update_s + 5 * c.update_group_s;
  EXPECT_NEAR(Simulated(model).step_s(), step, 1e-9);
}

TEST(SimulationTest, WithWorkersEnoughTheLearnerAloneSetsThePace) {
  RunModel model = Distinct();
  model.workers = 40;
  model.steps = 50;
  model.staleness_max = 2;
  const double cycle =
      UpdateSeconds(model) + model.costs.publish_s + model.costs.plan_s + model.costs.finish_s;
  RunModel longer = model;
  longer.steps = 150;
  EXPECT_NEAR(Simulated(longer).wall_s - Simulated(model).wall_s, 100 * cycle, 1e-6);
  EXPECT_NEAR(Simulated(longer).learner.wait_rollouts_s, Simulated(model).learner.wait_rollouts_s,
              1e-9);
}

TEST(SimulationTest, UtilisationRisesWithWorkersUntilTheLearnerIsTheLimit) {
  RunModel model = Distinct();
  model.groups_per_step = 64;
  model.groups_in_flight = 2;
  model.batch_groups_max = 1;
  model.staleness_max = 1;
  model.steps = 40;
  model.costs.spread = 0.3;
  model.costs.update_group_s = 0.05;
  double before = 0;
  for (const uint32_t workers : {1u, 2u, 4u, 8u, 16u, 32u, 64u}) {
    model.workers = workers;
    const double utilisation = Simulated(model).utilisation();
    EXPECT_GT(utilisation, before * 0.995) << workers << " workers";
    before = utilisation;
  }
  const double limit = UpdateSeconds(model) / (UpdateSeconds(model) + model.costs.publish_s +
                                               model.costs.plan_s + model.costs.finish_s);
  EXPECT_NEAR(before, limit, 0.05) << "but for the first step";
}

// A model drawn from the seed: every mechanism on or off, all sizes small.
RunModel Drawn(uint64_t seed) {
  RandomStream random({.seed = seed});
  const auto pick = [&](uint64_t low, uint64_t high) {
    return low + random.NextBelow(high - low + 1);
  };
  const auto sometimes = [&](double value) { return random.NextUniform() < 0.5 ? 0 : value; };
  RunModel model{.seed = seed, .steps = pick(5, 40)};
  model.workers = static_cast<uint32_t>(pick(1, 20));
  model.ranks = static_cast<uint32_t>(pick(1, 4));
  model.groups_per_step = pick(1, 24);
  model.publish_every = pick(1, 4);
  model.staleness_max = model.publish_every - 1 + pick(0, 3);
  model.groups_in_flight = static_cast<uint32_t>(pick(1, 4));
  model.batch_groups_max = static_cast<uint32_t>(pick(0, 3));
  model.weight_fanout = static_cast<uint32_t>(pick(0, 4));
  model.reward_servers = static_cast<uint32_t>(pick(0, 2));
  model.lease_s = 5 + 20 * random.NextUniform();
  model.silent_share = sometimes(0.5);
  model.failures_per_hour = sometimes(20);
  model.stalls_per_hour = sometimes(10);
  model.stall_s = 60 * random.NextUniform();
  model.group_failure_share = sometimes(0.05);
  model.learner_failures_per_hour = sometimes(1);
  model.checkpoint_every = pick(1, 5);
  model.eval_every = pick(0, 5);
  model.stragglers.quantile = sometimes(0.9);
  Costs& c = model.costs;
  c = {.batch_s = random.NextUniform(),
       .group_s = 0.1 + random.NextUniform(),
       .spread = random.NextUniform(),
       .straggler_share = sometimes(0.1),
       .straggler_factor = 10,
       .worker_spread = sometimes(0.5),
       .linger_s = sometimes(0.01),
       .apply_s = random.NextUniform(),
       .reward_s = 0.1 * random.NextUniform(),
       .reward_latency_s = random.NextUniform(),
       .update_s = random.NextUniform(),
       .publish_s = 0.1 * random.NextUniform(),
       .eval_s = random.NextUniform(),
       .latency_s = 0.01,
       .weight_bytes = 1e6,
       .group_bytes = 1e5,
       .learner_link_bytes_per_s = sometimes(1e6),
       .message_s = sometimes(0.001),
       .worker_restart_s = 20,
       .learner_restart_s = 30};
  return model;
}

TEST(SimulationTest, StalenessStaysWithinTheBudgetAndNothingIsLostOnTheBooks) {
  LeaseCounts seen;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    const RunModel model = Drawn(seed);
    const Outcome outcome = Simulated(model);
    EXPECT_EQ(outcome.steps, model.steps);
    EXPECT_LE(outcome.staleness_max, model.staleness_max);
    ExpectBalanced(outcome);
    if (HasFailure()) return;
    seen.failed += outcome.leases.failed;
    seen.expired += outcome.leases.expired;
    seen.superseded += outcome.leases.superseded;
    seen.dropped += outcome.leases.dropped;
  }
  EXPECT_GT(std::min({seen.failed, seen.expired, seen.superseded, seen.dropped}), 100u)
      << "a mechanism that never acts is not tested";
}

TEST(SimulationTest, WithoutDeathsNothingIsDiscarded) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    RunModel model = Drawn(seed);
    model.failures_per_hour = model.stalls_per_hour = model.learner_failures_per_hour = 0;
    model.group_failure_share = model.stragglers.quantile = 0;
    model.ages.factor = 0;  // Some of these runs have groups that take far longer than the median.
    const Outcome outcome = Simulated(model);
    EXPECT_EQ(outcome.discarded.total_s(), 0) << "seed " << seed;
    EXPECT_EQ(outcome.leases.granted, outcome.leases.accepted + outcome.leases.in_flight)
        << "seed " << seed;
  }
}

TEST(SimulationTest, OneSeedOneResult) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Outcome a = Simulated(Drawn(seed));
    const Outcome b = Simulated(Drawn(seed));
    EXPECT_EQ(a.wall_s, b.wall_s) << "seed " << seed;
    EXPECT_EQ(a.events, b.events) << "seed " << seed;
    EXPECT_EQ(a.sampling_s, b.sampling_s) << "seed " << seed;
  }
  EXPECT_NE(Simulated(Drawn(1)).wall_s, Simulated(Drawn(2)).wall_s);
}

TEST(SimulationTest, DeathsCostWhatTheyShould) {
  RunModel model{.steps = 400, .workers = 20, .groups_per_step = 40};
  model.groups_in_flight = 1;
  model.staleness_max = 1;
  model.failures_per_hour = 1;
  model.costs = {.group_s = 60, .update_s = 30, .worker_restart_s = 0};
  const Outcome outcome = Simulated(model);
  // Workers sample nearly always, and a death comes at any moment of a group: half of it is lost.
  EXPECT_GT(outcome.worker_deaths, 200u);
  EXPECT_NEAR(outcome.discarded.death_s / static_cast<double>(outcome.worker_deaths), 30, 3);
}

TEST(SimulationTest, ASecondLeaseSavesTheStepFromAStraggler) {
  RunModel model{.steps = 60, .workers = 12, .groups_per_step = 12};
  model.groups_in_flight = 1;
  model.costs = {.group_s = 1, .straggler_share = 0.05, .straggler_factor = 50, .update_s = 0.1};
  const Outcome without = Simulated(model);
  model.stragglers.quantile = 0.9;
  const Outcome with = Simulated(model);
  EXPECT_LT(with.step_s(), without.step_s() / 3);
  EXPECT_GT(with.leases.superseded, 0u);
  EXPECT_EQ(without.leases.superseded, 0u);
  ExpectBalanced(with);
}

TEST(SimulationTest, RelaysKeepTheLearnersEgressAtFanOutCopies) {
  RunModel model = Distinct();
  model.workers = 1000;
  model.weight_fanout = 4;
  EXPECT_DOUBLE_EQ(Simulated(model).learner_egress_bytes, 7 * 4 * 2e6);
  model.weight_fanout = 0;
  EXPECT_DOUBLE_EQ(Simulated(model).learner_egress_bytes, 7 * 1000 * 2e6);
}

TEST(SimulationTest, TheLearnerSendsNoFasterThanItsLink) {
  RunModel model = Distinct();
  model.workers = 300;
  model.groups_per_step = 600;
  model.staleness_max = 2;
  for (const uint32_t weight_fanout : {0u, 2u, 4u}) {
    model.weight_fanout = weight_fanout;
    const Outcome outcome = Simulated(model);
    EXPECT_LE(outcome.learner_egress_bytes / outcome.wall_s, 1e7) << "fan-out " << weight_fanout;
  }
}

TEST(SimulationTest, WeightsSpreadLikeTheDepthOfTheTree) {
  RunModel model = Distinct();
  model.workers = 1000;
  model.weight_fanout = 3;  // Levels of 3, 9, 27, ... workers.
  const double copy = 3 * 2e6 / 2e7;
  EXPECT_NEAR(FetchSeconds(model, 3) - FetchSeconds(model, 2), copy + 2 * 0.013, 1e-12);
  EXPECT_DOUBLE_EQ(FetchSeconds(model, 3), FetchSeconds(model, 11));
  EXPECT_NEAR(FetchSeconds(model, 12) - FetchSeconds(model, 11), copy + 2 * 0.013, 1e-12);
}

TEST(SimulationTest, ImpossibleModelsAreRefusedByName) {
  RunModel model = Distinct();
  model.publish_every = 3;
  model.staleness_max = 1;
  EXPECT_NE(Simulate(model).status().message().find("staleness_max"), std::string::npos);
  model = Distinct();
  model.costs.apply_s = -1;
  EXPECT_NE(Simulate(model).status().message().find("apply_s"), std::string::npos);
  model = Distinct();
  model.learner_failures_per_hour = 36000;
  model.costs.learner_restart_s = 1;
  EXPECT_EQ(Simulate(model, 100'000).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(SimulationTest, TenThousandWorkersTakeSeconds) {
  RunModel model = FindPreset("sd35m_lora")->model;
  model.weight_fanout = 2;
  model.workers = model.groups_per_step = 10'000;
  model.ranks = 5000;
  model.staleness_max = 1;
  model.steps = 30;
  model.failures_per_hour = 0.1;
  const auto began = std::chrono::steady_clock::now();
  const Outcome outcome = Simulated(model);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  EXPECT_GE(outcome.leases.accepted, 300'000u);
  EXPECT_LT(took.count(), 30) << "200 steps of them are to take seconds";
  RecordProperty("seconds", std::to_string(took.count()));
}

}  // namespace
}  // namespace oxbow::simulate
