// SPDX-License-Identifier: Apache-2.0
// The weights a worker samples with are what the learner vouched for, whatever comes after them.
#include "services/rollout/sampler_model.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "core/flow/sampler.h"
#include "io/tensor_torch.h"
#include "services/rollout/group_sampler.h"
#include "services/weights/snapshot.h"
#include "services/weights/snapshot_maker.h"
#include "tests/testing/tiny_model.h"

namespace oxbow::rollout {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

RunSpec TinySpec() {
  RunSpec spec;
  spec.architecture = TinyArchitecture();
  spec.latent_shape = kTinyLatent;
  return spec;
}

weights::TensorBytesByName BytesOf(const model::NamedTensors& tensors) {
  weights::TensorBytesByName bytes;
  for (const auto& [name, tensor] : tensors) bytes[name] = io::FromTorch(tensor);
  return bytes;
}

v1::SnapshotManifest::Probe ProbeOf(const model::VelocityModel& model) {
  const auto shape = weights::ProbeShapeOf(*TinyArchitecture(), kTinyLatent, {});
  return weights::RunProbe(model, *shape, 17);
}

// One frozen part, as within an epoch; the trained one is of `seed`.
std::unique_ptr<model::Policy> PolicyOf(uint64_t seed) {
  std::unique_ptr<model::Policy> policy = TinyPolicy(3);
  OXBOW_CHECK(policy->Load(TinyPolicy(seed)->parameters().tensors()).ok()) << seed;
  return policy;
}

// The weights of `seed` with the probe of `probed`.
weights::VerifiedSnapshot SnapshotOf(uint64_t version, uint64_t seed, uint64_t probed) {
  const std::unique_ptr<model::Policy> policy = PolicyOf(seed);
  const weights::TensorBytesByName frozen = BytesOf(policy->frozen());
  const weights::TensorBytesByName trained = BytesOf(policy->parameters().tensors());
  weights::Snapshot snapshot =
      weights::MakeSnapshot({Epoch(1), PolicyVersion(version), LearnerStep(1)}, frozen, trained);
  weights::VerifiedSnapshot verified{.manifest = snapshot.manifest, .chunks = snapshot.chunks};
  *verified.manifest.mutable_probe() = ProbeOf(PolicyOf(probed)->current());
  return verified;
}

std::string DigestOf(SamplerModel& model) { return ProbeOf(**model.ForGroups()).digest(); }

TEST(SamplerModelTest, ARefusedProbeLeavesTheWeightsInUse) {
  const RunSpec spec = TinySpec();
  SamplerModel model(spec);
  weights::ProbeComparison comparison;
  ASSERT_TRUE(model.Apply(SnapshotOf(5, 3, 3), comparison).ok());
  const std::string before = DigestOf(model);

  const absl::Status refused = model.Apply(SnapshotOf(6, 7, 8), comparison);
  EXPECT_THAT(refused.ToString(), HasSubstr("probe differs"));
  EXPECT_FALSE(comparison.bits_equal);
  ASSERT_TRUE(model.ready());
  EXPECT_EQ(model.version().value, 5u);
  EXPECT_EQ(DigestOf(model), before);

  ASSERT_TRUE(model.Apply(SnapshotOf(7, 7, 7), comparison).ok());
  EXPECT_EQ(model.version().value, 7u);
  EXPECT_NE(DigestOf(model), before);
}

TEST(SamplerModelTest, NothingIsReadyAfterARefusedFirstSnapshot) {
  const RunSpec spec = TinySpec();
  SamplerModel model(spec);
  weights::ProbeComparison comparison;
  EXPECT_FALSE(model.Apply(SnapshotOf(5, 3, 4), comparison).ok());
  EXPECT_FALSE(model.ready());
  EXPECT_TRUE(model.Apply(SnapshotOf(6, 3, 3), comparison).ok());
}

TEST(SamplerModelTest, AnotherFrozenPartIsRefused) {
  const RunSpec spec = TinySpec();
  SamplerModel model(spec);
  weights::ProbeComparison comparison;
  ASSERT_TRUE(model.Apply(SnapshotOf(5, 3, 3), comparison).ok());
  weights::VerifiedSnapshot other = SnapshotOf(6, 3, 3);
  other.manifest.set_base_sha256("another");
  EXPECT_EQ(model.Apply(other, comparison).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(model.version().value, 5u);
}

// A LoRA whose adapter has an effect, another one for each seed.
weights::VerifiedSnapshot AdapterOf(at::ScalarType compute, RunSpec& spec, uint64_t version = 5,
                                    uint64_t seed = 4) {
  spec.trained = model::Trained::kLora;
  spec.lora = {.rank = 2, .alpha = 4, .targets = {"attn.to_q", "ff.net.2"}};
  spec.compute = compute;
  const auto full = TinyPolicy(3);
  model::NamedTensors all = full->frozen();
  for (const auto& [name, tensor] : full->parameters().tensors()) all[name] = tensor;
  const auto policy = model::Policy::Create({.architecture = spec.architecture,
                                             .base = all,
                                             .trained = model::Trained::kLora,
                                             .lora = spec.lora,
                                             .with_ema = false,
                                             .trainable = false,
                                             .compute = compute})
                          .value();
  policy->parameters().flat().copy_(TinyNoise(seed, 1, {policy->parameters().numel()}));
  weights::Snapshot snapshot =
      weights::MakeSnapshot({Epoch(1), PolicyVersion(version), LearnerStep(1)},
                            BytesOf(policy->frozen()), BytesOf(policy->parameters().tensors()));
  weights::VerifiedSnapshot verified{.manifest = snapshot.manifest, .chunks = snapshot.chunks};
  *verified.manifest.mutable_probe() = ProbeOf(policy->current());
  return verified;
}

// A worker of a run that trains in float32 and samples in bfloat16.
TEST(SamplerModelTest, AWorkerOfAnotherDtypeDrawsTheBitsOfARunInThatDtype) {
  RunSpec spec = TinySpec();
  weights::ProbeComparison comparison;
  const weights::VerifiedSnapshot rough = AdapterOf(at::kBFloat16, spec);
  SamplerModel same(spec);
  ASSERT_TRUE(same.Apply(rough, comparison).ok());
  weights::VerifiedSnapshot exact = AdapterOf(at::kFloat, spec);
  const std::string exact_digest = exact.manifest.probe().digest();
  exact.manifest.mutable_probe()->set_tolerance(.25);
  spec.compute = at::kBFloat16;
  SamplerModel mixed(spec);
  ASSERT_TRUE(mixed.Apply(exact, comparison).ok());
  EXPECT_EQ(DigestOf(mixed), DigestOf(same));
  EXPECT_NE(DigestOf(mixed), exact_digest);
}

// Whatever the run says of merging and recording, which weights in host memory exclude.
// Promise: Where weights are changes no bit.
TEST(SamplerModelTest, WeightsInHostMemoryDrawTheSameBits) {
  for (const bool lora : {false, true}) {
    for (const at::ScalarType compute : {at::kFloat, at::kBFloat16}) {
      SCOPED_TRACE(::testing::Message() << lora << compute);
      RunSpec spec = TinySpec();
      const weights::VerifiedSnapshot snapshot =
          lora ? AdapterOf(compute, spec) : SnapshotOf(5, 3, 3);
      spec.weights_on_host = true;
      spec.merged = spec.graphs = lora;
      SamplerModel model(spec);
      weights::ProbeComparison comparison;
      const absl::Status applied = model.Apply(snapshot, comparison);
      ASSERT_TRUE(applied.ok()) << applied;
      EXPECT_TRUE(comparison.bits_equal);
    }
  }
}

constexpr int kDenoisingSteps = 5;

// A group, each of whose steps is taken by what `network` gives.
rl::Trajectory SampledBy(const RunSpec& spec, const NetworkOfStep& network) {
  const GroupTask task{.group = GroupId(1),
                       .group_size = 1,
                       .conditioning = TinyConditioning(1),
                       .head = std::nullopt,
                       .sde = {}};
  return SampleGroups(spec, network, *model::MakePixelDecoder(), {task})[0].trajectories[0];
}

// New weights are applied in the middle of a batch, in the network that samples it: what comes is
// what two networks would have drawn, one after the other, and refused weights change nothing.
TEST(SamplerModelTest, WeightsThatComeInFlightTakeTheStepsAfterThem) {
  enum Kind { kFull, kEvaluating, kAdapter, kMerged, kOnHost };
  for (const Kind kind : {kFull, kEvaluating, kAdapter, kMerged, kOnHost}) {
    for (const bool refused : {false, true}) {
      SCOPED_TRACE(::testing::Message() << kind << " refused " << refused);
      RunSpec spec = TinySpec();
      spec.sampling.sigmas = flow::SigmaGrid(flow::ScheduleKind::kLinspace, kDenoisingSteps, 3);
      spec.sampling.sde = {true, true, true, true, false};
      if (kind == kEvaluating) spec.held_out = flow::SamplingSpec{.sigmas = {1, 0}};
      spec.merged = kind == kMerged;
      spec.weights_on_host = kind == kOnHost;
      const bool lora = kind == kAdapter || kind == kMerged;
      const weights::VerifiedSnapshot old =
          lora ? AdapterOf(at::kFloat, spec, 5, 4) : SnapshotOf(5, 3, 3);
      weights::VerifiedSnapshot next =
          lora ? AdapterOf(at::kFloat, spec, 6, 8) : SnapshotOf(6, 7, 7);
      SamplerModel model(spec), first(spec), second(spec);
      weights::ProbeComparison comparison;
      for (SamplerModel* each : {&model, &first}) {
        ASSERT_TRUE(each->Apply(old, comparison).ok());
      }
      ASSERT_TRUE(second.Apply(next, comparison).ok());
      if (refused) *next.manifest.mutable_probe() = old.manifest.probe();

      int step = 0;
      const rl::Trajectory drawn = SampledBy(spec, [&] {
        if (step++ == 2) {
          EXPECT_EQ(model.Apply(next, comparison).ok(), !refused);
        }
        return VersionedNetwork{**model.ForGroups(), model.version()};
      });
      step = 0;
      const rl::Trajectory expected = SampledBy(spec, [&] {
        SamplerModel& takes = step++ < 2 || refused ? first : second;
        return VersionedNetwork{**takes.ForGroups(), takes.version()};
      });
      const uint64_t after = refused ? 5 : 6;
      EXPECT_EQ(drawn.behaviour_version, (std::vector<uint64_t>{5, 5, after, after, after}));
      EXPECT_EQ(drawn.log_prob, expected.log_prob);
      EXPECT_TRUE(at::equal(drawn.latents, expected.latents));
    }
  }
}

TEST(SamplerModelTest, ASnapshotThatIsNotOfTheModelIsRefusedByName) {
  RunSpec spec = TinySpec();
  const weights::VerifiedSnapshot snapshot = SnapshotOf(5, 3, 3);
  spec.architecture = testing::GraphArchitecture("tests/testing/graphs/tiny_one_block.json.gz");
  SamplerModel model(spec);
  weights::ProbeComparison comparison;
  EXPECT_THAT(model.Apply(snapshot, comparison).ToString(),
              AllOf(HasSubstr("unexpected: "), HasSubstr("transformer_blocks.1.attn.to_q.bias")));
  EXPECT_FALSE(model.ready());
}

// The snapshot of an evaluation: the trained part of `seed` alone, with the probe of `probed`.
std::shared_ptr<weights::VerifiedSnapshot> EvaluatedOf(uint64_t seed, uint64_t probed) {
  const weights::Snapshot snapshot =
      weights::MakeSnapshot({Epoch(1), PolicyVersion(9), LearnerStep(0)}, {},
                            BytesOf(PolicyOf(seed)->parameters().tensors()));
  auto evaluated = std::make_shared<weights::VerifiedSnapshot>();
  evaluated->manifest = snapshot.manifest;
  evaluated->chunks = snapshot.chunks;
  *evaluated->manifest.mutable_probe() = ProbeOf(PolicyOf(probed)->current());
  return evaluated;
}

// A model that samples with version 5, the weights of seed 3, for a run with evaluations.
// Promise: Any process draws an evaluation with the same bytes.
class EvaluatingModelTest : public ::testing::Test {
 protected:
  EvaluatingModelTest() {
    spec_.held_out = flow::SamplingSpec{.sigmas = {1, 0}};
    weights::ProbeComparison comparison;
    OXBOW_CHECK(model_.Apply(SnapshotOf(5, 3, 3), comparison).ok()) << "weights of seed 3";
  }
  static std::string Weights(uint64_t seed) { return ProbeOf(PolicyOf(seed)->current()).digest(); }
  std::string Drawn(const EvaluatedWeights::Weights& weights) {
    const auto network = model_.ForPictures(weights);
    return network.ok() ? ProbeOf(**network).digest() : network.status().ToString();
  }

  RunSpec spec_ = TinySpec();
  SamplerModel model_{spec_};
};

TEST_F(EvaluatingModelTest, PicturesHaveTheirWeightsAndGroupsThoseInUse) {
  const auto first = EvaluatedOf(7, 7), second = EvaluatedOf(8, 8);
  for (const auto& evaluated : {first, second, first}) {
    EXPECT_EQ(Drawn(evaluated), Weights(evaluated == first ? 7 : 8));
    EXPECT_EQ(model_.version().value, 5u);
  }
  EXPECT_EQ(DigestOf(model_), Weights(3));
}

// Whatever is loaded again is probed again, so a probe that nobody would pass shows it.
TEST_F(EvaluatingModelTest, WeightsOfAnEvaluationStayLoadedUntilGroupsCome) {
  const auto evaluated = EvaluatedOf(7, 7);
  EXPECT_EQ(Drawn(evaluated), Weights(7));
  *evaluated->manifest.mutable_probe() = ProbeOf(PolicyOf(8)->current());
  EXPECT_EQ(Drawn(evaluated), Weights(7));
  EXPECT_EQ(DigestOf(model_), Weights(3));
  EXPECT_THAT(Drawn(evaluated), HasSubstr("probe differs"));
}

TEST_F(EvaluatingModelTest, WeightsInUseAreNotLoadedForPictures) {
  EXPECT_EQ(Drawn(EvaluatedOf(3, 8)), Weights(3)) << "nothing asks for their probe";
}

TEST_F(EvaluatingModelTest, NothingIsDrawnWithWeightsThatNobodyVouchedFor) {
  EXPECT_THAT(Drawn(EvaluatedOf(7, 8)), HasSubstr("probe differs"));
  EXPECT_EQ(DigestOf(model_), Weights(3));
}

TEST_F(EvaluatingModelTest, NewWeightsComeBetweenPictures) {
  const auto evaluated = EvaluatedOf(7, 7);
  EXPECT_EQ(Drawn(evaluated), Weights(7));
  weights::ProbeComparison comparison;
  EXPECT_THAT(model_.Apply(SnapshotOf(6, 4, 8), comparison).ToString(), HasSubstr("probe differs"));
  EXPECT_EQ(DigestOf(model_), Weights(3)) << "those in use, not those of the evaluation";
  EXPECT_EQ(Drawn(evaluated), Weights(7));
  ASSERT_TRUE(model_.Apply(SnapshotOf(6, 4, 4), comparison).ok());
  EXPECT_EQ(Drawn(evaluated), Weights(7));
  EXPECT_EQ(DigestOf(model_), Weights(4));
}

// Some tensors may have been written by then: none of it is drawn with.
TEST_F(EvaluatingModelTest, WhatCannotBeLoadedIsAnErrorAndNotTheEnd) {
  const auto evaluated = EvaluatedOf(7, 7);
  v1::TensorManifest& tensor = *evaluated->manifest.mutable_tensors(0);
  tensor.add_shape(1);  // As many numbers in another shape.
  EXPECT_FALSE(model_.ForPictures(evaluated).ok());
  EXPECT_EQ(DigestOf(model_), Weights(3));
  EXPECT_EQ(Drawn(EvaluatedOf(8, 8)), Weights(8));
}

}  // namespace
}  // namespace oxbow::rollout
