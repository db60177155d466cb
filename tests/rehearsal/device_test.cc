// SPDX-License-Identifier: Apache-2.0
// The rehearsal device refuses what a GPU refuses, and what a GPU would let pass unseen.
#include <ATen/ATen.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/rehearsal/device_log.h"
#include "tests/rehearsal/device_memory.h"
#include "tests/rehearsal/settings.h"

namespace oxbow::rehearsal {
namespace {

using ::testing::HasSubstr;

const at::Device kGpu = at::Device(at::kCUDA, 0);
const at::Device kOtherGpu = at::Device(at::kCUDA, 1);

// The text that a call throws, in one line.
template <typename Call>
std::string Thrown(const Call& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing";
}

// Promise: GPU code does what the CPU's does. On a device that LibTorch takes for CUDA, which
// refuses what a GPU refuses (docs/decisions/0032-rehearsal-device.md), all tests of `tests/gpu`
// pass, with kernels at once and as late as waits allow. Short runs of all programs have the CPU's
// metrics. The memory of published networks is counted (docs/device_budgets.md). This shows neither
// speed nor the rounding of CUDA's kernels.
class RehearsalDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    TheSettings() = {.devices = 2};
    TheLog().Clear();
  }
  void TearDown() override { TheSettings() = {.devices = 2}; }
};

TEST_F(RehearsalDeviceTest, ComputesWhatTheCpuComputes) {
  at::manual_seed(1);
  const at::Tensor a = at::randn({5, 7}), b = at::randn({7, 3}), bias = at::randn({3});
  const at::Tensor there =
      at::addmm(bias.to(kGpu), a.to(kGpu), b.to(kGpu)).t().contiguous().softmax(0);
  EXPECT_EQ(there.device(), kGpu);
  EXPECT_TRUE(at::equal(there.cpu(), at::addmm(bias, a, b).t().contiguous().softmax(0)));
}

TEST_F(RehearsalDeviceTest, ConvolutionsAreThoseOfTheCpu) {
  at::manual_seed(6);
  const at::Tensor x = at::randn({2, 4, 9, 11}), bias = at::randn({4});
  const at::Tensor depthwise = at::randn({4, 1, 3, 3}), full = at::randn({4, 4, 3, 3});
  const auto of = [&](at::Device device) {
    const at::Tensor in = x.to(device), shift = bias.to(device);
    return std::vector<at::Tensor>{
        at::conv2d(in, full.to(device), shift, /*stride=*/2, /*padding=*/1),
        at::conv2d(in, depthwise.to(device), shift, /*stride=*/2, /*padding=*/1, 1, /*groups=*/4),
        at::conv2d(in, depthwise.to(device), {}, /*stride=*/1, /*padding=*/2, 2, /*groups=*/4),
        at::conv_transpose2d(in, full.to(device), shift, /*stride=*/2, /*padding=*/1,
                             /*output_padding=*/1)};
  };
  const auto near = of(at::kCPU), far = of(kGpu);
  for (size_t i = 0; i < near.size(); ++i) {
    EXPECT_TRUE(far[i].is_cuda());
    EXPECT_EQ(far[i].sizes(), near[i].sizes()) << i;
    EXPECT_TRUE(at::allclose(far[i].cpu(), near[i], 1e-5, 1e-5)) << i;
  }
}

TEST_F(RehearsalDeviceTest, GradientsAreThoseOfTheCpu) {
  at::manual_seed(2);
  const at::Tensor a = at::randn({4, 6}), w = at::randn({6, 6});
  const auto gradient = [&](at::Device device) {
    const at::Tensor leaf = w.to(device).clone().requires_grad_();
    at::layer_norm(at::gelu(a.to(device).mm(leaf)), {6}).square().sum().backward();
    return leaf.grad().cpu();
  };
  EXPECT_TRUE(at::allclose(gradient(kGpu), gradient(at::kCPU), 1e-6, 1e-6));
}

TEST_F(RehearsalDeviceTest, FreshAndFreedMemoryIsNotANumber) {
  EXPECT_TRUE(at::empty({1000}, kGpu).isnan().all().item<bool>());
  at::Tensor taken = at::ones({1000}, kGpu);
  const void* const place = taken.const_data_ptr();
  taken.reset();
  const at::Tensor again = at::empty({1000}, kGpu);
  EXPECT_EQ(again.const_data_ptr(), place) << "the block was not used again";
  EXPECT_TRUE(again.isnan().all().item<bool>());
}

TEST_F(RehearsalDeviceTest, TensorsOfTwoDevicesAreRefused) {
  const at::Tensor here = at::ones({3}), there = at::ones({3}, kGpu);
  EXPECT_THAT(Thrown([&] { (void)(here + there); }), HasSubstr("same device"));
  EXPECT_THAT(Thrown([&] { (void)at::cat({there, here}); }), HasSubstr("same device"));
  EXPECT_THAT(Thrown([&] { (void)at::layer_norm(there, {3}, here); }), HasSubstr("same device"));
  EXPECT_THAT(Thrown([&] { (void)(there + there.to(kOtherGpu)); }), HasSubstr("same device"));
  EXPECT_EQ((there + at::scalar_tensor(2.0)).sum().item<float>(), 9) << "a number may be anywhere";
}

TEST_F(RehearsalDeviceTest, MemoryHasALimitAndAPeak) {
  TheSettings().memory_bytes = 1 << 20;
  const size_t held = DeviceMemory::Of(0).Use().held;
  { const at::Tensor half = at::empty({1 << 17}, kGpu); }
  EXPECT_EQ(DeviceMemory::Of(0).Use().held, held);
  EXPECT_GE(DeviceMemory::Of(0).Use().peak, held + (1 << 19));
  EXPECT_THROW(at::empty({1 << 19}, kGpu), c10::OutOfMemoryError);
  TheSettings().memory_bytes = std::numeric_limits<size_t>::max();
  TheSettings().failing_allocation = DeviceMemory::Of(0).Use().allocations + 2;
  (void)at::empty({1}, kGpu);
  EXPECT_THROW(at::empty({1}, kGpu), c10::OutOfMemoryError);
  (void)at::empty({1}, kGpu);
}

TEST_F(RehearsalDeviceTest, KernelsTransfersAndValuesAreCounted) {
  const at::Tensor x = at::ones({8, 16}).to(kGpu), w = at::ones({16, 4}).to(kGpu);
  TheLog().Clear();
  (void)x.mm(w).sum().item<float>();
  const Figures figures = TheLog().Of(0);
  EXPECT_EQ(figures.AllKernels().count, 2);
  EXPECT_EQ(figures.AllKernels().flop, 2 * 8 * 16 * 4);
  EXPECT_EQ(figures.AllKernels().bytes, 4 * (8 * 16 + 16 * 4 + 8 * 4 + 8 * 4 + 1));
  EXPECT_EQ(figures.All(Transfer::kValue).count, 1);
  EXPECT_EQ(figures.All(Transfer::kHostToDevice).count, 0);
}

// LibTorch waits for the stream with every copy that is not asked to go behind.
TEST_F(RehearsalDeviceTest, BlockingCopiesInBothDirectionsAreWaits) {
  const at::Tensor pageable = at::ones({4}), there = at::ones({4}, kGpu);
  const at::Tensor pinned = at::ones({4}, at::TensorOptions().pinned_memory(true));
  const auto waits = [&](const at::Tensor& to, const at::Tensor& from, bool non_blocking) {
    TheLog().Clear();
    at::Tensor(to).copy_(from, non_blocking);
    return TheLog().Of(0).AllWaits().count;
  };
  EXPECT_EQ(waits(there, pageable, false), 1);
  EXPECT_EQ(waits(there, pinned, false), 1);
  EXPECT_EQ(waits(there, pinned, true), 0);
  EXPECT_EQ(waits(pageable, there, false), 1);
  EXPECT_EQ(waits(pageable, there, true), 1) << "pageable memory is never written behind";
  EXPECT_EQ(waits(pinned, there, true), 0);
}

// Promise: GPU code does what the CPU's does.
using RehearsalDeathTest = RehearsalDeviceTest;

TEST_F(RehearsalDeathTest, AHostThatReadsDeviceMemoryDiesByName) {
  const at::Tensor there = at::ones({3}, kGpu);
  EXPECT_DEATH((void)*static_cast<const volatile float*>(there.const_data_ptr()),
               "THE HOST TOUCHED DEVICE MEMORY at .* of cuda:0");
}

class LateDeviceTest : public RehearsalDeviceTest {
 protected:
  void SetUp() override {
    RehearsalDeviceTest::SetUp();
    TheSettings().mode = Mode::kLate;
  }
};

TEST_F(LateDeviceTest, WhoeverWaitsSeesWhatTheCpuComputes) {
  const at::Tensor x = at::arange(6.0).to(kGpu);
  EXPECT_EQ((x * x).sum().item<double>(), 55);
  EXPECT_TRUE(at::equal(at::layer_norm(x, {6}).cpu(), at::layer_norm(at::arange(6.0), {6})));
}

TEST_F(LateDeviceTest, WhoDoesNotWaitForACopySeesNotANumber) {
  const at::Tensor pinned = at::empty({3}, at::TensorOptions().pinned_memory(true));
  pinned.copy_(at::ones({3}, kGpu), /*non_blocking=*/true);
  EXPECT_TRUE(pinned.isnan().all().item<bool>());
  c10::impl::VirtualGuardImpl(at::kCUDA).getStream(kGpu).synchronize();
  EXPECT_TRUE(pinned.eq(1).all().item<bool>());
}

TEST_F(LateDeviceTest, PinnedMemoryIsReadWhenTheStreamGetsThere) {
  const at::Tensor pinned = at::ones({3}, at::TensorOptions().pinned_memory(true));
  const at::Tensor there = at::empty({3}, kGpu);
  there.copy_(pinned, /*non_blocking=*/true);
  pinned.fill_(2);  // Too early.
  EXPECT_TRUE(there.eq(2).all().item<bool>());
}

TEST_F(LateDeviceTest, AStreamSeesAnotherOnesResultsOnlyAfterTheEvent) {
  const c10::Stream other = c10::cuda::getStreamFromPool(false, 0);
  const c10::impl::VirtualGuardImpl guard(at::kCUDA);
  for (const bool waits : {false, true}) {
    const at::Tensor made = at::ones({3}, kGpu) * 2;
    if (waits) {
      c10::Event event(at::kCUDA);
      event.record(guard.getStream(kGpu));
      event.block(other);
    }
    const c10::StreamGuard on_other(other);
    const bool seen = (made + 1).eq(3).all().item<bool>();
    EXPECT_EQ(seen, waits);
  }
}

class RehearsedGraphTest : public RehearsalDeviceTest {
 protected:
  // Captures `work` on a stream of its own and returns what it returned.
  template <typename Work>
  at::Tensor Capture(at::cuda::CUDAGraph& graph, const Work& work) {
    const c10::StreamGuard own(c10::cuda::getStreamFromPool(false, 0));
    graph.capture_begin(at::cuda::graph_pool_handle(), cudaStreamCaptureModeThreadLocal);
    at::Tensor result;
    try {
      result = work();
    } catch (...) {
      graph.capture_end();
      throw;
    }
    graph.capture_end();
    return result;
  }
};

TEST_F(RehearsedGraphTest, ReadsWhereItReadAndWritesWhereItWrote) {
  const at::Tensor x = at::ones({4}, kGpu);
  at::cuda::CUDAGraph graph;
  const at::Tensor y = Capture(graph, [&] { return at::layer_norm(x * 2 + 1, {4}) + x; });
  EXPECT_TRUE(y.isnan().all().item<bool>()) << "nothing has run yet";
  for (const double value : {1.0, 5.0}) {
    x.fill_(value);
    graph.replay();
    EXPECT_TRUE(y.eq(value).all().item<bool>());
  }
}

TEST_F(RehearsedGraphTest, TheHostMayNotWaitWhileItCaptures) {
  const at::Tensor x = at::ones({4}, kGpu), host = at::ones({4});
  for (const std::function<at::Tensor()>& work : std::vector<std::function<at::Tensor()>>{
           [&] { return x * x.sum().item<float>(); }, [&] { return x.cpu(); },
           [&] { return host.to(kGpu) + x; }, [&] { return x.nonzero(); }}) {
    at::cuda::CUDAGraph graph;
    EXPECT_THAT(Thrown([&] { (void)Capture(graph, work); }), HasSubstr("capturing"));
  }
}

TEST_F(RehearsedGraphTest, ThePoolsMemoryStaysTheGraphs) {
  const at::Tensor x = at::ones({1000}, kGpu);
  auto graph = std::make_unique<at::cuda::CUDAGraph>();
  const at::Tensor y = Capture(*graph, [&] { return (x + 1) * (x + 2); });
  const at::Tensor others = at::ones({100000}, kGpu);  // Would take what is free.
  graph->replay();
  EXPECT_TRUE(y.eq(6).all().item<bool>());
  EXPECT_TRUE(others.eq(1).all().item<bool>());
}

}  // namespace
}  // namespace oxbow::rehearsal
