// SPDX-License-Identifier: Apache-2.0
// Four defects of a program, planted: the rehearsal device or the comparisons that run on it catch
// each of them.
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "tests/gpu/gpu_test.h"
#include "tests/rehearsal/settings.h"

namespace oxbow::model {
namespace {

using ::testing::HasSubstr;

template <typename Call>
std::string Thrown(const Call& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing";
}

// Promise: GPU code does what the CPU's does.
class PlantedDefectTest : public GpuTest {
 protected:
  void SetUp() override {
    rehearsal::TheSettings().devices = 2;
    GpuTest::SetUp();
  }
};

// Weights that leave for a file or another process without a copy to the CPU.
TEST_F(PlantedDefectTest, AHostThatReadsWeightsInPlaceDies) {
  const at::Tensor weights = at::ones({256}, at::TensorOptions(gpu_));
  EXPECT_DEATH(
      {
        const std::string bytes(static_cast<const char*>(weights.const_data_ptr()),
                                weights.nbytes());
        std::abort();  // Not reached.
      },
      "THE HOST TOUCHED DEVICE MEMORY");
}

// One weight of a network, or one input inside of it, that stays on the CPU.
TEST_F(PlantedDefectTest, AWeightLeftBehindOnTheCpuIsRefused) {
  const at::NoGradGuard no_grad;
  at::manual_seed(3);
  NamedTensors weights;
  for (const auto& [name, shape] : GpuSizedSd3()->shapes()) weights[name] = at::randn(shape);
  const Batch batch(2);
  const auto whole = *GpuSizedSd3()->Make(On(gpu_, weights), nullptr, {});
  EXPECT_EQ(Thrown([&] { (void)batch.Of(*whole); }), "nothing");
  for (const char* left : {"proj_out.weight", "transformer_blocks.1.attn.to_q.bias",
                           "transformer_blocks.0.attn.norm_q.weight"}) {
    NamedTensors most = On(gpu_, weights);
    most.at(left) = weights.at(left);
    const auto network = *GpuSizedSd3()->Make(most, nullptr, {});
    EXPECT_THAT(Thrown([&] { (void)batch.Of(*network); }), HasSubstr("same device")) << left;
  }
}

// A collective with a tensor that is not on the rank's GPU.
TEST_F(PlantedDefectTest, ACollectiveOfTheWrongDeviceIsRefused) {
  c10d::ProcessGroupNCCL group(c10::make_intrusive<c10d::HashStore>(), 0, 1,
                               c10d::ProcessGroupNCCL::Options::create());
  const auto sum = [&](const at::Tensor& tensor) {
    std::vector<at::Tensor> tensors = {tensor};
    return Thrown([&] { group.allreduce(tensors, {})->wait(); });
  };
  const at::Tensor good = at::ones({4}, at::TensorOptions(gpu_));
  EXPECT_EQ(sum(good), "nothing");
  EXPECT_THAT(sum(good.cpu()), HasSubstr("NCCL takes tensors of a GPU"));
  EXPECT_THAT(sum(good.to(at::Device(at::kCUDA, 1))), HasSubstr("a communicator of cuda:0"));
  EXPECT_THAT(sum(at::ones({4, 4}, at::TensorOptions(gpu_)).t().narrow(0, 0, 2)),
              HasSubstr("contiguous"));
}

// A recorded pass that took a value from the host: it replays the first one for ever. Nothing
// throws, but the comparison with launches, which graph_gpu_test.cc makes of the project's own
// recordings, sees it.
TEST_F(PlantedDefectTest, AValueThatGoesStaleInAGraphShowsInTheComparison) {
  const at::NoGradGuard no_grad;
  const auto recorder = MakeCudaGraphRecorder(gpu_);
  const at::Tensor x = at::ones({8}, at::TensorOptions(gpu_)), level = at::ones({1}, x.options());
  double host_level = 1;
  const auto right = recorder->Record([&] { return x * level; });
  const auto stale = recorder->Record([&] { return x * host_level; });
  for (const double value : {1.0, 0.5}) {
    level.fill_(value);
    host_level = value;
    const at::Tensor launched = x * value;
    EXPECT_TRUE(at::equal(right->Replay(), launched)) << value;
    EXPECT_EQ(at::equal(stale->Replay(), launched), value == 1.0) << value;
  }
}

}  // namespace
}  // namespace oxbow::model
