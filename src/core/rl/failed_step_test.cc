// SPDX-License-Identifier: Apache-2.0
// A learner step that fails, at whichever collective or by a value that is not finite, leaves
// weights, average, moments and counters as they were, bit for bit.
#include <gtest/gtest.h>

#include <cmath>

#include "core/rl/trainer.h"
#include "tests/testing/thread_ranks.h"
#include "tests/testing/tiny_model.h"
#include "tests/testing/toy_policy.h"

namespace oxbow::rl {
namespace {

using parallel::Ranks;

// Passes operations on to `ranks` until its number `fails_at`, counted from 1 since SetFailure;
// that one and all later ones fail, as ranks.h says. 0: never.
class FailingRanks final : public Ranks {
 public:
  explicit FailingRanks(Ranks& ranks) : ranks_(ranks) {}
  void SetFailure(int fails_at) {
    fails_at_ = fails_at;
    done_ = 0;
  }

  int rank() const override { return ranks_.rank(); }
  int size() const override { return ranks_.size(); }
  absl::Status AllReduceSum(at::Tensor& tensor) override {
    return Fails() ? kLost : ranks_.AllReduceSum(tensor);
  }
  absl::Status AllReduceMax(at::Tensor& tensor) override {
    return Fails() ? kLost : ranks_.AllReduceMax(tensor);
  }
  std::unique_ptr<parallel::Pending> StartAllReduceSum(const at::Tensor& tensor) override {
    if (Fails()) return std::make_unique<Lost>();
    return ranks_.StartAllReduceSum(tensor);
  }
  std::unique_ptr<parallel::Pending> StartReduceSum(const at::Tensor& tensor, int root) override {
    if (Fails()) return std::make_unique<Lost>();
    return ranks_.StartReduceSum(tensor, root);
  }
  absl::Status ReduceScatterSum(const at::Tensor& input, at::Tensor& output) override {
    return Fails() ? kLost : ranks_.ReduceScatterSum(input, output);
  }
  absl::Status AllGather(const at::Tensor& input, at::Tensor& output) override {
    return Fails() ? kLost : ranks_.AllGather(input, output);
  }
  absl::Status Broadcast(at::Tensor& tensor, int root) override {
    return Fails() ? kLost : ranks_.Broadcast(tensor, root);
  }
  std::unique_ptr<parallel::Pending> StartBroadcast(const at::Tensor& tensor, int root) override {
    if (Fails()) return std::make_unique<Lost>();
    return ranks_.StartBroadcast(tensor, root);
  }
  absl::Status Barrier() override { return Fails() ? kLost : ranks_.Barrier(); }
  absl::StatusOr<std::vector<std::string>> GatherBytes(std::string_view mine) override {
    if (Fails()) return kLost;
    return ranks_.GatherBytes(mine);
  }
  absl::Status BroadcastBytes(std::string& bytes, int root) override {
    return Fails() ? kLost : ranks_.BroadcastBytes(bytes, root);
  }
  void Abort(const absl::Status&) override {}

 private:
  class Lost final : public parallel::Pending {
   public:
    absl::Status Wait() override { return kLost; }
  };
  bool Fails() { return ++done_ >= fails_at_ && fails_at_ > 0; }

  inline static const absl::Status kLost = absl::UnavailableError("a peer left");
  Ranks& ranks_;
  int fails_at_ = 0;
  int done_ = 0;
};

struct Path {
  std::string name;
  int ranks = 2;
  int updates = 1;
  bool deterministic = false;
  bool shard = false;
  bool shard_gradients = false;
  MomentPlace moments = MomentPlace::kWithWeights;
  bool ema = true;
  bool lora = false;
  bool offloads = false;
  bool shares = false;  // Offloaded weights, in bfloat16 products, in memory of all ranks.
};

flow::SamplingSpec Spec() {
  return {.sigmas = flow::SigmaGrid(flow::ScheduleKind::kDiffusersDefault, 10, 3),
          .sde = {true, true, true, false, false, false, false, false, false, false}};
}

TrainerOptions OptionsOf(const Path& path) {
  return {.sampling = Spec(),
          .run_seed = 3,
          .updates = path.updates,
          .deterministic = path.deterministic,
          .shard_optimizer = path.shard || path.shard_gradients,
          .shard_gradients = path.shard_gradients,
          .moments = path.moments,
          .kl = {.weight = 1e-2},
          .adamw = {.learning_rate = 1e-3, .exchanged_max = 1},  // As little as there can be.
          .ema_enabled = path.ema};
}

std::unique_ptr<model::Policy> PolicyOf(const Path& path) {
  if (!path.lora && !path.offloads) return std::make_unique<ToyPolicy>();
  model::Policy::Options options{
      .architecture = rollout::TinyArchitecture(),
      .trained = path.lora ? model::Trained::kLora : model::Trained::kFull,
      .lora = {.rank = 2, .alpha = 2, .targets = {"attn.to_q", "attn.to_v"}},
      .with_ema = path.ema,
      .average_on_host = path.offloads,
      .weights_on_host = path.offloads,
      .compute = path.shares ? at::kBFloat16 : at::kFloat,
      .checkpoint_activations = path.offloads};
  uint64_t subject = 0;
  for (const auto& [name, shape] : rollout::TinyArchitecture()->shapes()) {
    options.base[name] = 0.3 * rollout::TinyNoise(1, ++subject, shape);
  }
  auto policy = model::Policy::Create(std::move(options));
  OXBOW_CHECK(policy.ok()) << policy.status();
  return *std::move(policy);
}

std::vector<Group> Rollout(const Path& path, uint64_t step, uint64_t version) {
  const ToyPolicy drawn_with;
  std::vector<Group> groups;
  for (uint64_t g = 0; g < 4; ++g) {
    groups.push_back(ToyGroup(Spec(), drawn_with.current(), step * 100 + g, 3, version));
    if (path.lora || path.offloads) groups.back().conditioning = rollout::TinyConditioning(g);
  }
  return groups;
}

std::map<std::string, at::Tensor> StateOf(const Trainer& trainer, model::Policy& policy, bool ema) {
  std::map<std::string, at::Tensor> state = {{"counters", trainer.Counters()}};
  for (const auto& [name, moment] : trainer.CopyMoments()) {
    state[name] = at::empty({moment.length()}, at::kFloat);
    moment.PutBack(state[name]);
  }
  state["weights"] = policy.parameters().flat().detach().clone();
  if (ema) state["average"] = policy.ema_parameters().flat().detach().clone();
  return state;
}

void ExpectEqual(const std::map<std::string, at::Tensor>& a,
                 const std::map<std::string, at::Tensor>& b, const std::string& when) {
  for (const auto& [name, tensor] : a) {
    EXPECT_TRUE(at::equal(tensor, b.at(name))) << name << " " << when;
  }
}

// The copy that goes over the bus has the update's values.
void ExpectNarrowIsRight(model::ParameterSet& weights) {
  const at::Tensor narrow = weights.narrow();
  if (narrow.defined()) {
    EXPECT_TRUE(at::equal(narrow, weights.flat().to(at::kBFloat16)));
  }
}

class FailedStepTest : public ::testing::TestWithParam<Path> {};

// Promise: Gradients in pieces train the same network.
// Promise: Where weights are changes no bit.
TEST_P(FailedStepTest, LeavesEverythingAsItWas) {
  const Path& path = GetParam();
  parallel::ThreadWorld(path.ranks).Run([&](Ranks& world) {
    FailingRanks ranks(world);
    const std::unique_ptr<model::Policy> policy = PolicyOf(path);
    Trainer trainer(OptionsOf(path), *policy, ranks);
    if (path.shares) {
      ASSERT_TRUE(trainer.ShareHostMemory().ok());
    }
    ASSERT_TRUE(trainer.Step(LearnerStep(0), Rollout(path, 0, 0)).ok());
    ExpectNarrowIsRight(policy->parameters());
    const auto before = StateOf(trainer, *policy, path.ema);
    const std::vector<Group> groups = Rollout(path, 1, trainer.version().value);

    int operation = 1;
    for (; path.ranks > 1; ++operation) {
      ranks.SetFailure(operation);
      const absl::Status status = trainer.Step(LearnerStep(1), groups).status();
      if (status.ok()) break;
      ASSERT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
      ExpectEqual(before, StateOf(trainer, *policy, path.ema),
                  absl::StrCat("after operation ", operation, " failed"));
    }
    EXPECT_TRUE(path.ranks == 1 || operation > 2 * path.updates) << operation;
    ranks.SetFailure(0);
    if (path.ranks > 1) ExpectNarrowIsRight(policy->parameters());
    const auto after = StateOf(trainer, *policy, path.ema);

    std::vector<Group> broken = Rollout(path, 2, trainer.version().value);
    for (Group& group : broken) group.trajectories[1].latents[2].fill_(std::nan(""));
    EXPECT_EQ(trainer.Step(LearnerStep(2), broken).status().code(), absl::StatusCode::kOutOfRange);
    ExpectEqual(after, StateOf(trainer, *policy, path.ema), "after a value that is not finite");
    EXPECT_EQ(trainer.version().value,
              static_cast<uint64_t>(path.updates) * (path.ranks == 1 ? 1 : 2));

    // The failed steps left no trace in what follows.
    const std::unique_ptr<model::Policy> other = PolicyOf(path);
    Trainer undisturbed(OptionsOf(path), *other, world);
    ASSERT_TRUE(undisturbed.Step(LearnerStep(0), Rollout(path, 0, 0)).ok());
    if (path.ranks > 1) {
      ASSERT_TRUE(undisturbed.Step(LearnerStep(1), groups).ok());
      ExpectEqual(StateOf(undisturbed, *other, path.ema), after, "of an undisturbed trainer");
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Paths, FailedStepTest,
    ::testing::Values(
        Path{.name = "Alone", .ranks = 1}, Path{.name = "AloneTwice", .ranks = 1, .updates = 2},
        Path{.name = "Whole"}, Path{.name = "WholeThrice", .updates = 3},
        Path{.name = "Sharded", .shard = true},
        Path{.name = "ShardedTwice", .updates = 2, .shard = true},
        Path{.name = "AloneOnHost", .ranks = 1, .updates = 2, .moments = MomentPlace::kHost},
        Path{.name = "ShardedOnHost", .updates = 2, .shard = true, .moments = MomentPlace::kHost},
        Path{.name = "ShardedGradients", .shard_gradients = true},
        Path{.name = "ShardedGradientsTwice", .ranks = 3, .updates = 2, .shard_gradients = true},
        Path{.name = "ShardedGradientsOnHost",
             .shard_gradients = true,
             .moments = MomentPlace::kHost},
        Path{.name = "DeterministicShardedGradients",
             .ranks = 3,
             .deterministic = true,
             .shard_gradients = true},
        Path{.name = "Offloaded", .ranks = 1, .updates = 2, .offloads = true},
        Path{.name = "OffloadedSharded", .shard = true, .offloads = true},
        Path{.name = "OffloadedShardedGradients", .shard_gradients = true, .offloads = true},
        Path{.name = "OffloadedShardedGradientsTwice",
             .ranks = 3,
             .updates = 2,
             .shard_gradients = true,
             .offloads = true},
        Path{.name = "DeterministicOffloadedShardedGradients",
             .deterministic = true,
             .shard_gradients = true,
             .offloads = true},
        Path{.name = "Shared", .shard_gradients = true, .offloads = true, .shares = true},
        Path{.name = "SharedTwice",
             .ranks = 3,
             .updates = 2,
             .shard_gradients = true,
             .offloads = true,
             .shares = true},
        Path{.name = "Deterministic", .deterministic = true},
        Path{.name = "DeterministicSharded", .ranks = 3, .deterministic = true, .shard = true},
        Path{.name = "WithoutAverage", .shard = true, .ema = false},
        Path{.name = "Lora", .shard = true, .lora = true},
        Path{.name = "LoraTwice", .updates = 2, .shard = true, .lora = true}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace oxbow::rl
