// SPDX-License-Identifier: Apache-2.0
// What a worker samples with is what the learner vouched for, whatever comes after it.
#include "services/rollout/sampler_model.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/tensor_torch.h"
#include "services/weights/snapshot.h"
#include "services/weights/snapshot_maker.h"
#include "tests/testing/tiny_model.h"

namespace oxbow::rollout {
namespace {

using ::testing::HasSubstr;

RunSpec TinySpec() {
  RunSpec spec;
  spec.architecture = model::MakeSd3Architecture(TinyParams());
  spec.latent_shape = kTinyLatent;
  return spec;
}

weights::TensorBytesByName BytesOf(const model::NamedTensors& tensors) {
  weights::TensorBytesByName bytes;
  for (const auto& [name, tensor] : tensors) bytes[name] = io::FromTorch(tensor);
  return bytes;
}

v1::SnapshotManifest::Probe ProbeOf(const model::VelocityModel& model) {
  const auto shape =
      weights::ProbeShapeOf(*model::MakeSd3Architecture(TinyParams()), kTinyLatent, {});
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

std::string DigestOf(const SamplerModel& model) { return ProbeOf(model.model()).digest(); }

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

// What an evaluation names: the trained part of `seed` alone, with the probe of `probed`.
weights::VerifiedSnapshot EvaluatedOf(uint64_t seed, uint64_t probed) {
  const weights::Snapshot snapshot =
      weights::MakeSnapshot({Epoch(1), PolicyVersion(9), LearnerStep(0)}, {},
                            BytesOf(PolicyOf(seed)->parameters().tensors()));
  weights::VerifiedSnapshot evaluated{.manifest = snapshot.manifest, .chunks = snapshot.chunks};
  *evaluated.manifest.mutable_probe() = ProbeOf(PolicyOf(probed)->current());
  return evaluated;
}

TEST(SamplerModelTest, OtherWeightsAreDrawnWithAndThoseInUseAreBack) {
  RunSpec spec = TinySpec();
  spec.held_out = flow::SamplingSpec{.sigmas = {1, 0}};
  SamplerModel model(spec);
  weights::ProbeComparison comparison;
  ASSERT_TRUE(model.Apply(SnapshotOf(5, 3, 3), comparison).ok());
  const std::string in_use = DigestOf(model);
  std::string drawn_with;
  const auto draw = [&](const model::VelocityModel& network) {
    drawn_with = ProbeOf(network).digest();
  };
  ASSERT_TRUE(model.With(EvaluatedOf(7, 7), draw).ok());
  EXPECT_EQ(drawn_with, ProbeOf(PolicyOf(7)->current()).digest());
  EXPECT_EQ(DigestOf(model), in_use);
  EXPECT_EQ(model.version().value, 5u);

  drawn_with.clear();
  EXPECT_THAT(model.With(EvaluatedOf(7, 8), draw).ToString(), HasSubstr("probe differs"));
  EXPECT_EQ(drawn_with, "") << "nothing is drawn with weights that nobody vouched for";
  EXPECT_EQ(DigestOf(model), in_use);

  // Weights in use are not loaded again, so nothing asks for their probe.
  ASSERT_TRUE(model.With(EvaluatedOf(3, 8), draw).ok());
  EXPECT_EQ(drawn_with, in_use);

  EXPECT_THROW((void)model.With(EvaluatedOf(7, 7),
                                [](const model::VelocityModel&) { throw std::bad_alloc(); }),
               std::bad_alloc);
  EXPECT_EQ(DigestOf(model), in_use);
}

}  // namespace
}  // namespace oxbow::rollout
