// SPDX-License-Identifier: Apache-2.0
// On a GPU attention uses a fused kernel, not separate matrix products and softmax.
#include <ATen/SDPBackend.h>
#include <ATen/core/grad_mode.h>

#include "tests/gpu/gpu_test.h"

namespace oxbow::model {
namespace {

// While it exists, only the named kernels may be chosen.
class Kernels {
 public:
  Kernels(bool flash, bool efficient, bool cudnn, bool math) {
    Allow(flash, efficient, cudnn, math);
  }
  ~Kernels() { Allow(true, true, true, true); }
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;

 private:
  static void Allow(bool flash, bool efficient, bool cudnn, bool math) {
    at::globalContext().setSDPUseFlash(flash);
    at::globalContext().setSDPUseMemEfficient(efficient);
    at::globalContext().setSDPUseCuDNN(cudnn);
    at::globalContext().setSDPUseMath(math);
  }
};

class AttentionGpuTest : public GpuTest {
 protected:
  // The policy's velocities with only some kernels allowed: torch throws if none of them fits.
  at::Tensor With(bool flash, bool efficient, bool cudnn, bool math, at::ScalarType compute) {
    const at::NoGradGuard no_grad;
    const Kernels kernels(flash, efficient, cudnn, math);
    return Batch(4).Of(GpuSizedPolicy({.device = gpu_, .compute = compute})->current());
  }
};

TEST_F(AttentionGpuTest, Bf16RunsOnFlashAloneAndIsCloseToProductsAndSoftmax) {
  const at::Tensor flash = With(true, false, false, false, at::kBFloat16);
  const at::Tensor math = With(false, false, false, true, at::kBFloat16);
  ExpectNear("flash", flash, math, kShortTolerance);
}

TEST_F(AttentionGpuTest, Float32RunsOnAFusedKernelToo) {
  const at::Tensor efficient = With(false, true, false, false, at::kFloat);
  const at::Tensor math = With(false, false, false, true, at::kFloat);
  ExpectNear("efficient", efficient, math, kExactTolerance);
}

// Shapes of SD3.5-M at 512 pixels: 1024 tokens of the image and 205 of the prompt.
TEST_F(AttentionGpuTest, LeftToChooseTorchTakesAFusedKernelForThePublishedSize) {
  const auto choice = [&](at::ScalarType type) {
    const auto heads = at::empty({8, 24, 1229, 64}, at::TensorOptions(gpu_).dtype(type));
    return static_cast<at::SDPBackend>(at::_fused_sdp_choice(heads, heads, heads));
  };
  const at::SDPBackend shorter = choice(at::kBFloat16), exact = choice(at::kFloat);
  RecordProperty("bf16", static_cast<int>(shorter));
  RecordProperty("f32", static_cast<int>(exact));
  EXPECT_TRUE(shorter == at::SDPBackend::flash_attention ||
              shorter == at::SDPBackend::cudnn_attention)
      << static_cast<int>(shorter);
  EXPECT_EQ(exact, at::SDPBackend::efficient_attention) << static_cast<int>(exact);
}

}  // namespace
}  // namespace oxbow::model
