// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>

#include <fstream>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "io/safetensors.h"
#include "io/tensor_torch.h"

namespace oxbow::io {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

WeightFiles Written(const std::map<std::string, at::Tensor>& tensors) {
  const auto path = std::filesystem::path(::testing::TempDir()) / "weights_torch.safetensors";
  EXPECT_TRUE(WriteSafetensors(path, {.tensors = AllFromTorch(tensors)}).ok());
  return WeightFiles::OpenFile(path).value();
}

// Values that every floating-point type holds exactly.
const std::vector<float> kExact = {0, 1, -2.5, 0.375, 96};

TEST(LoadTensorsTest, EveryFloatingPointTypeLoadsAsEveryOther) {
  const at::Tensor exact = at::tensor(kExact);
  const WeightFiles files = Written({{"bf16", exact.to(at::kBFloat16)},
                                     {"f16", exact.to(at::kHalf)},
                                     {"f32", exact},
                                     {"f64", exact.to(at::kDouble)},
                                     {"mask", at::ones({2}, at::kBool)},
                                     {"position_ids", at::arange(3, at::kLong)},
                                     {"scalar", at::scalar_tensor(2.0)}});
  for (const DType wanted : {DType::kF32, DType::kF16, DType::kBF16}) {
    const auto loaded = LoadTensors(files, {.floats_as = wanted, .wanted = {}});
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    for (const char* name : {"bf16", "f16", "f32", "f64"}) {
      EXPECT_EQ(loaded->at(name).scalar_type(), ScalarTypeOf(wanted)) << name;
      EXPECT_TRUE(at::equal(loaded->at(name).to(at::kFloat), exact)) << name;
    }
    EXPECT_EQ(loaded->at("position_ids").scalar_type(), at::kLong);
    EXPECT_EQ(loaded->at("mask").scalar_type(), at::kBool);
    EXPECT_EQ(loaded->at("scalar").item<double>(), 2.0);
  }
  const auto kept = LoadTensors(files, {.floats_as = std::nullopt, .wanted = {}});
  EXPECT_EQ(kept->at("f16").scalar_type(), at::kHalf);
  EXPECT_EQ(kept->at("f64").scalar_type(), at::kDouble);
}

// Pages of mapped files that this process holds, in kB.
int64_t MappedResident() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word != "RssFile:") continue;
    int64_t kilobytes = 0;
    status >> kilobytes;
    return kilobytes;
  }
  ADD_FAILURE() << "no RssFile in /proc/self/status";
  return 0;
}

TEST(LoadTensorsTest, WhatWasCopiedIsNotKeptInMemoryTwice) {
  const at::Tensor large = at::arange(8 << 20, at::kFloat);  // 32 MiB.
  const WeightFiles files = Written({{"large", large}});
  const int64_t before = MappedResident();
  const auto loaded = LoadTensors(files);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_LT(MappedResident() - before, 8 << 10);
  EXPECT_TRUE(at::equal(loaded->at("large"), large));
  EXPECT_TRUE(at::equal(
      CopyOf(DType::kF32, files.headers().at("large").shape, files.BytesOf("large")), large));
}

TEST(LoadTensorsTest, UnwantedTensorsAreLeftAlone) {
  const WeightFiles files =
      Written({{"decoder.a", at::ones({2})},
               {"encoder.a", at::full({2}, std::numeric_limits<float>::quiet_NaN())}});
  const auto loaded = LoadTensors(
      files, {.wanted = [](const std::string& name) { return name.starts_with("decoder."); }});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->size(), 1u);
}

TEST(LoadTensorsTest, BrokenNumbersAndOverflowNameTheTensorAndTheFile) {
  for (const float broken :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    const auto status =
        LoadTensors(Written({{"proj.weight", at::tensor({1.0f, broken, 2.0f})}})).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("'proj.weight'"), HasSubstr("weights_torch.safetensors")));
  }
  const WeightFiles large = Written({{"wo.weight", at::tensor({1.0f, 7e4f})}});
  const auto status = LoadTensors(large, {.floats_as = DType::kF16, .wanted = {}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("'wo.weight'"), HasSubstr("F16")));
  EXPECT_TRUE(LoadTensors(large, {.floats_as = DType::kBF16, .wanted = {}}).ok());
}

}  // namespace
}  // namespace oxbow::io
