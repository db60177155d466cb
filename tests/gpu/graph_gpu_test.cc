// SPDX-License-Identifier: Apache-2.0
// Replayed CUDA graphs give the same bits as kernels launched one by one.
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>

#include "tests/gpu/gpu_test.h"

namespace oxbow::model {
namespace {

class GraphGpuTest : public GpuTest, public ::testing::WithParamInterface<PolicyKind> {
 protected:
  PolicyKind Kind() const {
    PolicyKind kind = GetParam();
    kind.device = gpu_;
    kind.trainable = false;
    return kind;
  }
};

// Promise: CUDA graphs change no number.
// Promise: GPU code does what the CPU's does.
TEST_P(GraphGpuTest, ReplaysHaveTheBitsOfLaunchesForAnyShapesAndWeights) {
  PolicyKind kind = Kind();
  const auto launched = GpuSizedPolicy(kind);
  kind.graphs = MakeCudaGraphRecorder(gpu_);
  const auto replayed = GpuSizedPolicy(kind);
  const c10::InferenceMode inference;
  for (uint64_t round = 0; round < 3; ++round) {
    for (const int64_t rows : {1, 4, 3}) {
      for (const int64_t height : {16, 8}) {
        const Batch batch(rows, height, 16, 100 * round + static_cast<uint64_t>(rows));
        EXPECT_TRUE(at::equal(batch.Of(launched->current()), batch.Of(replayed->current())))
            << "round " << round << ", " << rows << " rows, height " << height;
      }
    }
    at::manual_seed(round);
    NamedTensors fresh;
    for (const auto& [name, tensor] : launched->parameters().tensors()) {
      fresh[name] = at::randn(tensor.sizes()) * 0.1;
    }
    ASSERT_TRUE(launched->Load(fresh).ok() && replayed->Load(fresh).ok());
  }
}

std::string NameOf(const ::testing::TestParamInfo<PolicyKind>& info) {
  const PolicyKind& kind = info.param;
  return std::string(kind.trained == Trained::kFull ? "Full" : "Lora") +
         (kind.merged ? "Merged" : "") + (kind.guidance > 1 ? "Guided" : "") +
         (kind.compute == at::kBFloat16 ? "Bf16" : "");
}

INSTANTIATE_TEST_SUITE_P(Kinds, GraphGpuTest,
                         ::testing::Values(PolicyKind{.trained = Trained::kFull}, PolicyKind{},
                                           PolicyKind{.compute = at::kBFloat16},
                                           PolicyKind{.merged = true},
                                           PolicyKind{.compute = at::kBFloat16, .guidance = 4}),
                         NameOf);

using GraphRecorderGpuTest = GpuTest;

// Pools, streams and the allocator survive many recordings, and a failed one.
TEST_F(GraphRecorderGpuTest, RecordsAgainAfterAllAreGoneAndAfterOneThatBroke) {
  const auto recorder = MakeCudaGraphRecorder(gpu_);
  const at::NoGradGuard no_grad;
  const at::Tensor x = at::ones({1000}, at::TensorOptions(gpu_));
  for (int i = 0; i < 3; ++i) {
    const auto doubled = recorder->Record([&] { return x * 2 + i; });
    EXPECT_EQ(doubled->Replay().sum().item<float>(), 2000.0F + 1000.0F * static_cast<float>(i));
    x.fill_(3);
    EXPECT_EQ(doubled->Replay().sum().item<float>(), 6000.0F + 1000.0F * static_cast<float>(i));
    x.fill_(1);
  }
  int calls = 0;
  // A capture must not synchronise; the warm-up calls may.
  EXPECT_THROW(recorder->Record([&] {
    if (++calls > 2) (void)x.sum().item<float>();
    return x * 2;
  }),
               std::exception);
  const auto again = recorder->Record([&] { return x * 4; });
  EXPECT_EQ(again->Replay().sum().item<float>(), 4000.0F);
}

}  // namespace
}  // namespace oxbow::model
