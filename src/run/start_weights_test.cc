// SPDX-License-Identifier: Apache-2.0
// Weights of a start come back whole or are refused; an adapter is fitted to its run or refused.
#include "run/start_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/file.h"
#include "io/diffusers_directory.h"
#include "io/lora_file.h"
#include "tests/testing/scoped_directory.h"

namespace oxbow::run {
namespace {

using ::testing::HasSubstr;

constexpr char kA[] = "blocks.0.attn.to_q.lora_A.weight";
constexpr char kB[] = "blocks.0.attn.to_q.lora_B.weight";

io::TensorBytes Floats(std::vector<int64_t> shape, const std::vector<float>& values) {
  io::TensorBytes tensor{.dtype = io::DType::kF32, .shape = std::move(shape)};
  tensor.data.assign(reinterpret_cast<const char*>(values.data()), 4 * values.size());
  return tensor;
}

io::StoredAdapter Adapter() {
  return {.modules = {{"blocks.0.attn.to_q",
                       {Floats({2, 1}, {3, 4}), Floats({1, 2}, {1, 2}), /*scale=*/2}}},
          .file = "file"};
}

std::map<std::string, io::TensorBytes> Tensors() {
  return {{kA, Floats({2, 1}, {3, 4})}, {kB, Floats({1, 2}, {1, 2})}};
}

v1::LoraConfig Settings(uint32_t rank, double alpha, const char* target = "attn.to_q") {
  v1::LoraConfig lora;
  lora.set_rank(rank);
  lora.set_alpha(alpha);
  lora.add_targets(target);
  return lora;
}

class StartWeightsTest : public ::testing::Test {
 protected:
  StartWeightsTest() : run_(directory_.path()) {}
  const oxbow::testing::ScopedDirectory directory_;
  const std::filesystem::path run_;
};

TEST_F(StartWeightsTest, ComeBackWithTheirSource) {
  ASSERT_FALSE(ReadStart(run_).value().has_value());
  EXPECT_EQ(StartSource(run_), "");
  ASSERT_TRUE(WriteStart(run_, {.from = "runs/old, step 40", .tensors = Tensors()}).ok());
  const auto start = ReadStart(run_);
  ASSERT_TRUE(start.ok()) << start.status();
  EXPECT_EQ((*start)->from, "runs/old, step 40");
  EXPECT_EQ((*start)->tensors.at(kB).data, Tensors().at(kB).data);
  EXPECT_THAT(StartSource(run_), HasSubstr("runs/old, step 40, sha256 "));
}

TEST_F(StartWeightsTest, WithoutTheirRecordThereIsNoStart) {
  ASSERT_TRUE(WriteStart(run_, {.from = "a", .tensors = Tensors()}).ok());
  std::filesystem::remove(run_ / "start/start.json");
  EXPECT_FALSE(ReadStart(run_).value().has_value());
}

// Promise: A start from other weights is those weights.
TEST_F(StartWeightsTest, OtherBytesAreRefused) {
  ASSERT_TRUE(WriteStart(run_, {.from = "a", .tensors = Tensors()}).ok());
  std::string bytes = ReadFile(run_ / "start/weights.safetensors").value();
  bytes.back() ^= 1;
  ASSERT_TRUE(WriteFileAtomically(run_ / "start/weights.safetensors", bytes).ok());
  EXPECT_EQ(ReadStart(run_).status().code(), absl::StatusCode::kDataLoss);
  ASSERT_TRUE(WriteFileAtomically(run_ / "start/start.json", R"({"from": 1})").ok());
  EXPECT_EQ(ReadStart(run_).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(StartWeightsTest, AnotherAlphaScalesBSoThatTheAdapterIsTheSame) {
  const auto same = AdapterFor(Settings(2, 4), Adapter());
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(same->at(kB).data, Floats({1, 2}, {1, 2}).data);
  const auto half = AdapterFor(Settings(2, 8), Adapter());
  ASSERT_TRUE(half.ok()) << half.status();
  EXPECT_EQ(half->at(kB).data, Floats({1, 2}, {0.5, 1}).data);
  EXPECT_EQ(half->at(kA).data, Floats({2, 1}, {3, 4}).data);
}

TEST_F(StartWeightsTest, ASmallerRankStaysAtTheSameStrength) {
  const auto fitted = AdapterFor(Settings(8, 16), Adapter());
  ASSERT_TRUE(fitted.ok()) << fitted.status();
  EXPECT_EQ(fitted->at(kA).shape, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(fitted->at(kB).data, Floats({1, 2}, {1, 2}).data);
}

// Promise: A start from other weights is those weights.
TEST_F(StartWeightsTest, ALargerRankOrAnotherModuleIsRefusedInOneLine) {
  EXPECT_EQ(AdapterFor(Settings(1, 4), Adapter()).status().message(),
            "the adapter is of rank 2 at blocks.0.attn.to_q; set model.lora.rank to it, got 1");
  EXPECT_EQ(AdapterFor(Settings(2, 4, "attn.to_k"), Adapter()).status().message(),
            "the adapter has a module that model.lora.targets does not name: blocks.0.attn.to_q");
}

// Promise: A start from other weights is those weights.
TEST_F(StartWeightsTest, FilesOfARunReadBackAsTheAdapter) {
  const std::string module = "transformer_blocks.0.attn.to_q";
  const std::filesystem::path model = OXBOW_SOURCE_DIR "/models/digits";
  const auto components = io::OpenDiffusersDirectory(model).value();
  const auto shape =
      io::ReadComponentHeaders(components.at("transformer"))->at(module + ".weight").shape;
  const std::string a = module + ".lora_A.weight";
  const std::string b = module + ".lora_B.weight";
  const io::LoraExport lora{
      .tensors = {{a, Floats({2, shape[1]}, std::vector<float>(2 * shape[1], 0.3f))},
                  {b, Floats({shape[0], 2}, std::vector<float>(2 * shape[0], 0.7f))}},
      .rank = 2,
      .alpha = 4,
      .targets = {"attn.to_q"},
      .base_model = "base",
      .provenance = {}};
  ASSERT_TRUE(io::WritePeftLora(run_ / "peft", lora).ok());
  ASSERT_TRUE(io::WriteDiffusersLora(run_ / "diffusers", lora).ok());
  v1::ModelConfig config;
  config.set_path(model.string());
  *config.mutable_lora() = Settings(2, 4);
  for (const char* const path : {"peft", "diffusers", "diffusers/pytorch_lora_weights.safetensors",
                                 "peft/adapter_model.safetensors"}) {
    const auto start = StartFromAdapter(config, run_ / path);
    ASSERT_TRUE(start.ok()) << path << ": " << start.status();
    EXPECT_EQ(start->tensors.at(a).data, lora.tensors.at(a).data) << path;
    EXPECT_EQ(start->tensors.at(b).data, lora.tensors.at(b).data) << path;
    EXPECT_THAT(start->from, HasSubstr(".safetensors"));
  }
  EXPECT_EQ(StartFromAdapter(config, run_ / "none").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace oxbow::run
