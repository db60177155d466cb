// SPDX-License-Identifier: Apache-2.0
#include "io/tensor_torch.h"

#include <ATen/ATen.h>

#include "gtest/gtest.h"

namespace oxbow::io {
namespace {

TEST(TensorTorchTest, EveryDTypeRoundTrips) {
  for (const auto type : {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble, at::kLong, at::kInt,
                          at::kByte, at::kBool, at::kChar}) {
    const at::Tensor original = at::arange(12, at::kFloat).view({3, 4}).remainder(5).to(type);
    const auto back = ToTorch(FromTorch(original));
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->scalar_type(), type);
    EXPECT_TRUE(at::equal(*back, original)) << at::toString(type);
  }
}

TEST(TensorTorchTest, StridedScalarAndEmptyTensorsArriveContiguous) {
  for (const at::Tensor& original : {at::arange(12, at::kFloat).view({3, 4}).t(),
                                     at::scalar_tensor(2.5), at::empty({0, 4}, at::kFloat)}) {
    const TensorBytes bytes = FromTorch(original);
    const auto back = ToTorch(bytes);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_TRUE(back->is_contiguous());
    EXPECT_TRUE(at::equal(*back, original));
  }
}

TEST(TensorTorchTest, RefusesBytesThatDoNotFitTheShape) {
  TensorBytes bytes = FromTorch(at::zeros({2, 2}));
  bytes.data.pop_back();
  EXPECT_EQ(ToTorch(bytes).status().code(), absl::StatusCode::kInvalidArgument);
  bytes.shape = {int64_t{1} << 40, int64_t{1} << 40};
  EXPECT_EQ(ToTorch(bytes).status().code(), absl::StatusCode::kInvalidArgument);
  bytes.shape = {-1, 4};
  EXPECT_EQ(ToTorch(bytes).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace oxbow::io
