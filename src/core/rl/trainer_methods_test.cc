// SPDX-License-Identifier: Apache-2.0
// Laws that hold for every method on the trainer's rails.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>

#include "core/parallel/ranks.h"
#include "core/parallel/share.h"
#include "core/rl/awm.h"
#include "core/rl/trainer.h"
#include "core/rl/v_grpo.h"
#include "tests/testing/thread_ranks.h"
#include "tests/testing/toy_policy.h"

namespace oxbow::rl {
namespace {

flow::SamplingSpec Spec(bool ode = false) {
  flow::SamplingSpec spec{.sigmas = flow::SigmaGrid(flow::ScheduleKind::kDiffusersDefault, 10, 3),
                          .sde = std::vector<bool>(10, false)};
  for (size_t i = 0; i < 5; ++i) spec.sde[i] = !ode;
  if (ode) spec.dynamics = flow::DynamicsKind::kOde;
  return spec;
}

bool HasRatio(MethodKind kind) { return FactsOf(kind).ratio != RatioUse::kNone; }

model::OldPolicy OldOf(MethodKind kind) {
  const OldCopy copy = FactsOf(kind).old_copy;
  if (copy == OldCopy::kSamples) return model::OldPolicy::kSamples;
  return copy == OldCopy::kNever ? model::OldPolicy::kNone : model::OldPolicy::kKept;
}

struct Case {
  const char* name;
  std::function<void(TrainerOptions&)> set;
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

TrainerOptions Options(const Case& c) {
  TrainerOptions options{.sampling = Spec(),
                         .run_seed = 3,
                         .updates = 2,
                         .clip_range = 2e-3,
                         .adamw = {.learning_rate = 1e-3}};
  c.set(options);
  if (!FactsOf(options.method).needs_density()) options.sampling = Spec(/*ode=*/true);
  return options;
}

void Nft(TrainerOptions& o) {
  o.method = MethodKind::kNft;
  o.kl.weight = 1e-4;
  o.kl.all_steps = true;
  o.copies.old = {.decay = .5, .rate = .1};
}
void Awm(TrainerOptions& o) {
  o.method = MethodKind::kAwm;
  o.times = {.sampler = TimeSampler::kWithoutInit, .count = 4, .fraction = .9};
  o.clip_range = 1;
  o.old_kl_weight = .1;
  o.copies.old = {.decay = .3, .rate = .05};
}
void VGrpo(TrainerOptions& o) {
  o.method = MethodKind::kVGrpo;
  o.times = {.sampler = TimeSampler::kDiscrete,
             .count = 4,
             .fraction = 1,
             .times = Sharing::kGroup,
             .noise = Sharing::kGroup};
  o.old_kl_weight = .1;
}

const Case kCases[] = {
    {"Grpo", [](TrainerOptions&) {}},
    {"BehaviourClip", [](TrainerOptions& o) { o.correction = Correction::kBehaviourClip; }},
    {"Dance", [](TrainerOptions& o) { o.step_fraction = .6; }},
    {"CpsSurrogate", [](TrainerOptions& o) { o.sampling.dynamics = flow::DynamicsKind::kCps; }},
    {"TempFlow", [](TrainerOptions& o) { o.step_weight = StepWeight::kNoise; }},
    {"Guard", [](TrainerOptions& o) { o.method = MethodKind::kGuard; }},
    {"Dppo",
     [](TrainerOptions& o) {
       o.method = MethodKind::kDppo;
       o.clip_range = 1e-5;
     }},
    {"Nft", Nft},
    {"Awm", Awm},
    {"AwmHuber",
     [](TrainerOptions& o) {
       Awm(o);
       o.settings.values = {{"weighting", static_cast<double>(AwmWeighting::kHuber)}, {"ratio", 1}};
       o.kl.weight = 1e-3;
       o.kl.space = KlSpace::kMean;
     }},
    {"VGrpo", VGrpo},
    {"VGrpoBound",
     [](TrainerOptions& o) {
       VGrpo(o);
       o.settings.values = {{"prediction", static_cast<double>(VGrpoPrediction::kNoise)},
                            {"weight", static_cast<double>(VGrpoWeight::kBound)}};
     }},
    {"Gspo", [](TrainerOptions& o) { o.method = MethodKind::kGspo; }}};

std::vector<Group> Rollout(const TrainerOptions& options, const model::VelocityModel& model,
                           uint64_t step, uint64_t version, uint64_t count = 4) {
  std::vector<Group> groups;
  for (uint64_t g = 0; g < count; ++g) {
    groups.push_back(ToyGroup(options.sampling, model, step * 100 + g, 6, version));
  }
  return groups;
}

struct Bench {
  explicit Bench(TrainerOptions o) : Bench(o, OldOf(o.method)) {}
  Bench(TrainerOptions o, model::OldPolicy old) : options(std::move(o)), policy(1, old) {}

  StepResult Step(uint64_t step, uint64_t groups = 4) {
    auto result = trainer.Step(LearnerStep(step), Rollout(options, policy.sampler(), step,
                                                          trainer.version().value, groups));
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *std::move(result) : StepResult{};
  }
  at::Tensor weights() { return policy.parameters().flat().detach().clone(); }

  const TrainerOptions options;
  ToyPolicy policy;
  std::unique_ptr<parallel::Ranks> ranks = parallel::MakeSingleRank();
  Trainer trainer{options, policy, *ranks};
};

// The weights of the policy, and of its old copy if it has one.
at::Tensor WeightsOf(model::Policy& policy) {
  const at::Tensor own = policy.parameters().flat().detach();
  return policy.has_old() ? at::cat({own, policy.old_parameters().flat()}) : own;
}

TEST(MethodCasesTest, EveryMethodIsACase) {
  std::set<MethodKind> kinds;
  for (const Case& c : kCases) kinds.insert(Options(c).method);
  EXPECT_EQ(kinds.size(), AllMethods().size());
}

class TrainerMethodsTest : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Of, TrainerMethodsTest, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(TrainerMethodsTest, TheRewardOfAToyTaskRises) {
  TrainerOptions options = Options(GetParam());
  options.adamw.learning_rate = 2e-2;
  if (options.method == MethodKind::kGrpo || options.method == MethodKind::kGspo) {
    options.clip_range = .1;
  }
  if (options.method == MethodKind::kGuard) options.clip_range = .05;
  if (options.method == MethodKind::kDppo) options.clip_range = .05;
  if (options.method == MethodKind::kVGrpo) options.clip_range = .05;
  options.old_kl_weight = 0;
  Bench bench(options);
  double first = 0, last = 0;
  for (uint64_t step = 0; step < 30; ++step) {
    const double reward = bench.Step(step, 6).metrics.at("train/reward_mean");
    if (step < 5) first += reward / 5;
    if (step >= 25) last += reward / 5;
  }
  EXPECT_GT(last, first + .15) << "from " << first;
}

TEST_P(TrainerMethodsTest, RatiosAreExactlyOneBeforeThePolicyMoves) {
  TrainerOptions options = Options(GetParam());
  options.updates = 1;
  Bench bench(options);
  for (uint64_t step = 0; step < 3; ++step) {
    const auto metrics = bench.Step(step).metrics;
    EXPECT_EQ(metrics.count("train/ratio_mean"), HasRatio(options.method) ? 1u : 0u);
    if (!HasRatio(options.method)) continue;
    EXPECT_EQ(metrics.at("train/ratio_min"), 1);
    EXPECT_EQ(metrics.at("train/ratio_max"), 1);
  }
}

TEST_P(TrainerMethodsTest, LaterUpdatesAndPassesSeeRatiosThatMoved) {
  TrainerOptions options = Options(GetParam());
  options.updates = 1;
  options.passes = 3;
  Bench bench(options);
  const auto metrics = bench.Step(0).metrics;
  EXPECT_EQ(bench.trainer.version(), PolicyVersion(3));
  if (!HasRatio(options.method)) return;
  EXPECT_GT(metrics.at("train/ratio_std"), 0);
}

TEST(TrainerMetricsTest, TheDistanceFromTheBaseIsThatOfTheWeightsSinceTheStart) {
  Bench bench(Options(kCases[0]));
  const at::Tensor start = bench.weights();
  for (uint64_t step = 0; step < 3; ++step) {
    const auto metrics = bench.Step(step).metrics;
    const double moved = (bench.weights() - start).norm().item<double>();
    ASSERT_GT(moved, 0);
    EXPECT_NEAR(metrics.at("train/base_distance"), moved, 1e-5 * moved);
    if (step > 0) continue;
    EXPECT_NEAR(metrics.at("train/update_norm"), moved, 1e-5 * moved);
  }
}

// Groups as rank `rank` has them: latents of other ranks' groups have a shape and no numbers.
std::vector<Group> SeenBy(std::vector<Group> groups, const parallel::Ranks& world) {
  const parallel::Share own = parallel::ShareOf(groups.size(), world.rank(), world.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    if (own.Has(g)) continue;
    for (Trajectory& trajectory : groups[g].trajectories)
      trajectory.latents = trajectory.latents.to(at::kMeta);
  }
  return groups;
}

std::vector<at::Tensor> TrainOn(int ranks, const TrainerOptions& options) {
  std::vector<at::Tensor> weights(static_cast<size_t>(ranks));
  parallel::ThreadWorld(ranks).Run([&](parallel::Ranks& world) {
    ToyPolicy policy(1, OldOf(options.method));
    Trainer trainer(options, policy, world);
    for (uint64_t step = 0; step < 3; ++step) {
      const auto groups =
          SeenBy(Rollout(options, policy.sampler(), step, trainer.version().value), world);
      const auto result = trainer.Step(LearnerStep(step), groups);
      ASSERT_TRUE(result.ok()) << result.status();
    }
    weights[static_cast<size_t>(world.rank())] = WeightsOf(policy);
  });
  return weights;
}

// Figures 1 and 2 of V-GRPO. One pair of time and noise: the mean of several hides their share.
TEST(SurrogateSpreadTest, IsSmallerWhereAGroupSharesTimesAndNoise) {
  const auto spread = [](Sharing sharing) {
    TrainerOptions options = Options({"VGrpo", VGrpo});
    options.times.count = 1;
    options.times.times = options.times.noise = sharing;
    return Bench(options).Step(0, 16).metrics.at("train/surrogate_cv");
  };
  const double shared = spread(Sharing::kGroup);
  EXPECT_GT(shared, 0);
  EXPECT_LT(shared, spread(Sharing::kSample));
  EXPECT_EQ(Bench(Options({"Awm", Awm})).Step(0).metrics.count("train/surrogate_cv"), 0u);
}

TEST_P(TrainerMethodsTest, DeterministicTrainingHasTheSameBitsForEveryNumberOfRanks) {
  TrainerOptions options = Options(GetParam());
  options.deterministic = true;
  options.kl = {.weight = 1e-2, .precedent = .5};
  if (!FactsOf(options.method).needs_density()) options.anchor.weight = .1;
  const at::Tensor alone = TrainOn(1, options)[0];
  for (const int ranks : {2, 3}) {
    for (const at::Tensor& weights : TrainOn(ranks, options)) {
      EXPECT_TRUE(at::equal(weights, alone)) << ranks << " ranks";
    }
  }
}

// 7 rows hold a whole sample; 2 are a part of one, except for methods that need it whole.
// Promise: Micro-batches and activation checkpointing change no result. Smaller backward passes and
// recomputed blocks give the gradient of whole ones. Each weight gets its gradient once, so sums
// over ranks may overlap with the backward pass.
TEST_P(TrainerMethodsTest, PassesOfFewRowsAddUpToTheWholeGradient) {
  TrainerOptions options = Options(GetParam());
  options.kl = {.weight = 1e-2, .precedent = .5};
  options.anchor.weight = .1;
  const at::Tensor whole = TrainOn(1, options)[0];
  for (const int rows : {7, 2, 1}) {
    options.rows_per_pass = rows;
    for (const int ranks : {1, 2}) {
      for (const at::Tensor& weights : TrainOn(ranks, options)) {
        EXPECT_TRUE(at::allclose(weights, whole, 1e-4, 1e-6))
            << rows << " rows, " << ranks << " ranks, " << (weights - whole).abs().max();
      }
    }
  }
}

// The reference moves at step 2, once or again and again: a resumed run has it from its state.
// Promise: An end of reuse is an end.
TEST_P(TrainerMethodsTest, ARunResumedFromItsStateHasTheSameBits) {
  for (const bool once : {false, true}) {
    TrainerOptions options = Options(GetParam());
    options.kl = {.weight = 1e-2, .precedent = .5};
    options.copies.reference_every = once ? 0 : 2;
    options.copies.reference_at = once ? 2 : 0;
    Bench whole(options), first(options), second(options);
    for (uint64_t step = 0; step < 3; ++step) {
      whole.Step(step);
      first.Step(step);
    }
    {
      const at::NoGradGuard no_grad;
      second.policy.parameters().CopyFrom(first.policy.parameters());
      second.policy.ema_parameters().CopyFrom(first.policy.ema_parameters());
    }
    ASSERT_TRUE(second.trainer.LoadState(*first.trainer.State()).ok());
    for (uint64_t step = 3; step < 5; ++step) {
      const auto a = whole.Step(step).metrics, b = second.Step(step).metrics;
      for (const auto& [name, value] : a) EXPECT_EQ(b.at(name), value) << name;
    }
    EXPECT_TRUE(at::equal(whole.weights(), second.weights()));
    EXPECT_TRUE(at::equal(WeightsOf(whole.policy), WeightsOf(second.policy)));
  }
}

// On-policy, every correction and the off-policy objective are Flow-GRPO.
TEST(TrainerParityTest, OnPolicyEveryCorrectionHasFlowGrposBits) {
  const auto train = [](Correction correction) {
    TrainerOptions options = Options(kCases[0]);
    options.correction = correction;
    options.clip_range = 3e-4;
    options.kl.weight = 1e-2;
    Bench bench(options);
    for (uint64_t step = 0; step < 4; ++step) bench.Step(step);
    return bench.weights();
  };
  const at::Tensor parent = train(Correction::kSequence);
  for (const Correction correction :
       {Correction::kNone, Correction::kNaive, Correction::kBypass, Correction::kBehaviourClip}) {
    EXPECT_TRUE(at::equal(train(correction), parent)) << static_cast<int>(correction);
  }
}

// A flat reference policy pulls to where it was put last.
TEST(TrainerReferenceTest, TheReferenceBecomesThePolicyAfterEveryStage) {
  TrainerOptions options = Options(kCases[0]);
  options.copies.reference_every = 2;
  Bench bench(options);
  const at::Tensor start = bench.weights();
  bench.Step(0);
  EXPECT_TRUE(at::equal(bench.policy.reference_parameters().flat(), start));
  bench.Step(1);
  EXPECT_TRUE(at::equal(bench.policy.reference_parameters().flat(), bench.weights()));
}

TEST(TrainerOldPolicyTest, ItFollowsByTheScheduleAfterEveryLearnerStep) {
  TrainerOptions options = Options(kCases[0]);
  Nft(options);
  options.sampling = Spec(true);
  Bench bench(options);
  const at::Tensor start = bench.weights();
  EXPECT_DOUBLE_EQ(bench.Step(0).metrics.at("train/old_decay"), .1);
  const at::Tensor want = start * .1 + bench.weights() * .9;
  EXPECT_LT((bench.policy.old_parameters().flat() - want).abs().max().item<double>(), 1e-7);
}

// AWM's ratio is to the policy that drew the samples. In the first step that is the policy before
// the step, whichever of the two samples.
TEST(TrainerOldPolicyTest, AwmThatSamplesWithItComparesWithIt) {
  TrainerOptions options = Options({"Awm", Awm});
  options.copies.old = {.shape = DecayShape::kConstant, .decay = .9};
  Bench current(options, model::OldPolicy::kKept), old(options, model::OldPolicy::kSamples);
  current.Step(0);
  old.Step(0);
  EXPECT_TRUE(at::allclose(current.weights(), old.weights(), 1e-4, 1e-6));
  EXPECT_FALSE(at::equal(old.policy.old_parameters().flat(), old.weights()));
  EXPECT_EQ(&old.policy.sampler(), &old.policy.old());
  const model::RowCount before = old.policy.rows();
  old.Step(1);
  EXPECT_EQ(old.policy.rows().forward - before.forward, 4 * 6 * (10 + 4))
      << "steps of the rollout, and the old copy once a row";

  TrainerOptions once = options;
  once.updates = 1;
  Bench still(once, model::OldPolicy::kKept), moved(once, model::OldPolicy::kSamples);
  for (Bench* const bench : {&still, &moved}) bench->Step(0);
  EXPECT_EQ(still.Step(1).metrics.at("train/ratio_std"), 0);
  EXPECT_GT(moved.Step(1).metrics.at("train/ratio_std"), 0);
}

TEST(TrainerZeroVarianceTest, UnmaskedGroupsTrainWithTheKlAlone) {
  for (const auto mode : {ZeroVariance::kUnmasked, ZeroVariance::kMeanOverAll}) {
    TrainerOptions options = Options(kCases[0]);
    options.zero_variance = mode;
    options.kl.weight = 1;
    Bench bench(options);
    bench.Step(0);
    const at::Tensor before = bench.weights();
    auto groups = Rollout(options, bench.policy.current(), 1, bench.trainer.version().value, 1);
    for (Trajectory& trajectory : groups[0].trajectories) trajectory.reward = .5;
    ASSERT_TRUE(bench.trainer.Step(LearnerStep(1), groups).ok());
    EXPECT_EQ(at::equal(bench.weights(), before), mode == ZeroVariance::kMeanOverAll);
  }
}

// Two rewards that only one rule tells apart.
TEST(TrainerRewardMixTest, RewardsAreMixedAsTold) {
  const auto spread = [](RewardMix mix) {
    TrainerOptions options = Options(kCases[0]);
    options.reward_mix = mix;
    options.reward_weights = {{"a", 1}, {"b", 1}};
    Bench bench(options);
    auto groups = Rollout(options, bench.policy.current(), 0, 0, 2);
    for (Group& group : groups) {
      for (size_t s = 0; s < group.trajectories.size(); ++s) {
        group.trajectories[s].rewards = {{"a", s % 2 == 0 ? 1. : 0.}, {"b", s % 2 == 0 ? 0. : 1.}};
        group.trajectories[s].reward = 1;
      }
    }
    return bench.trainer.Step(LearnerStep(0), groups)->metrics.at("train/samples_trained");
  };
  EXPECT_EQ(spread(RewardMix::kSum), 0);
  EXPECT_EQ(spread(RewardMix::kEach), 12);
}

}  // namespace
}  // namespace oxbow::rl
