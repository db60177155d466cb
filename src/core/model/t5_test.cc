// SPDX-License-Identifier: Apache-2.0
#include "core/model/t5.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "base/philox.h"
#include "gtest/gtest.h"

namespace oxbow::model {
namespace {

constexpr char kConfig[] = R"({"vocab_size": 40, "d_model": 16, "d_kv": 8, "d_ff": 24,
  "num_layers": 2, "num_heads": 3, "feed_forward_proj": "gated-gelu", "model_type": "t5"})";

NamedTensors RandomWeights(const T5Params& params, double scale = 1) {
  RandomStream random({.seed = 7});
  NamedTensors tensors;
  for (const auto& [name, shape] : T5Shapes(params)) {
    at::Tensor tensor = at::empty(shape, at::kFloat);
    const bool norm = name.find("norm") != std::string::npos;
    for (int64_t i = 0; i < tensor.numel(); ++i) {
      tensor.mutable_data_ptr<float>()[i] =
          static_cast<float>(norm ? 1 : scale * 0.3 * random.NextNormal());
    }
    tensors[name] = tensor;
  }
  return tensors;
}

NamedTensors InType(const NamedTensors& tensors, at::ScalarType type) {
  NamedTensors cast;
  for (const auto& [name, tensor] : tensors) cast[name] = tensor.to(T5StorageType(name, type));
  return cast;
}

at::Tensor Encoded(const T5Params& params, const NamedTensors& tensors,
                   const at::Tensor& mask = {}) {
  const at::NoGradGuard no_gradients;
  const auto encoder = MakeT5Encoder(params, tensors);
  EXPECT_TRUE(encoder.ok()) << encoder.status();
  if (!encoder.ok()) return at::zeros({1});
  const at::Tensor ids = at::arange(22, at::kLong).view({2, 11});
  return (*encoder)->Encode(ids, mask);
}

TEST(T5Test, SixteenBitWeightsGiveNearlyTheSame) {
  const T5Params params = *ParseT5Config(kConfig);
  const NamedTensors weights = RandomWeights(params);
  const at::Tensor exact = Encoded(params, weights);
  for (const auto& [type, tolerance] :
       {std::pair(at::kBFloat16, 0.1), std::pair(at::kHalf, 0.02)}) {
    const at::Tensor rough = Encoded(params, InType(weights, type));
    EXPECT_EQ(rough.scalar_type(), at::kFloat);
    EXPECT_LT((rough - exact).abs().max().item<double>(), tolerance) << at::toString(type);
    EXPECT_GT((rough - exact).abs().max().item<double>(), 0) << at::toString(type);
  }
}

// The last product of the published weights leaves float16, and so does the sum of the blocks.
TEST(T5Test, HalfPrecisionDoesNotOverflow) {
  const T5Params params = *ParseT5Config(kConfig);
  NamedTensors weights = RandomWeights(params);
  for (auto& [name, tensor] : weights) {
    if (name.ends_with(".wo.weight")) tensor = tensor * 1e6;
  }
  const at::Tensor exact = Encoded(params, weights);
  const at::Tensor half = Encoded(params, InType(weights, at::kHalf));
  EXPECT_TRUE(half.isfinite().all().item<bool>());
  EXPECT_LT((half - exact).abs().max().item<double>(), 0.05);
}

TEST(T5Test, HiddenTokensChangeNothing) {
  const T5Params params = *ParseT5Config(kConfig);
  const auto encoder = MakeT5Encoder(params, RandomWeights(params));
  ASSERT_TRUE(encoder.ok()) << encoder.status();
  const at::NoGradGuard no_gradients;
  const at::Tensor ids = at::arange(12, at::kLong).view({1, 12});
  const at::Tensor mask = at::arange(12).lt(9).view({1, 12});
  const at::Tensor masked = (*encoder)->Encode(ids, mask).narrow(1, 0, 9);
  const at::Tensor alone = (*encoder)->Encode(ids.narrow(1, 0, 9), {});
  EXPECT_TRUE(at::allclose(masked, alone, 0, 1e-5));
  const at::Tensor all = (*encoder)->Encode(ids, {}).narrow(1, 0, 9);
  EXPECT_GT((all - alone).abs().max().item<double>(), 0.01);
}

TEST(T5Test, APromptDoesNotDependOnOthers) {
  const T5Params params = *ParseT5Config(R"({"vocab_size": 40, "d_model": 64, "d_kv": 16,
      "d_ff": 96, "num_layers": 2, "num_heads": 4, "feed_forward_proj": "gated-gelu"})");
  const auto encoder = MakeT5Encoder(params, RandomWeights(params));
  ASSERT_TRUE(encoder.ok()) << encoder.status();
  const at::NoGradGuard no_gradients;
  for (const int64_t length : {3, 16, 40}) {
    const at::Tensor ids = at::arange(5 * length, at::kLong).remainder(40).view({5, length});
    const at::Tensor together = (*encoder)->Encode(ids, {});
    for (int64_t row = 0; row < 5; ++row) {
      const at::Tensor alone = (*encoder)->Encode(ids.narrow(0, row, 1), {});
      EXPECT_TRUE(at::equal(alone, together.narrow(0, row, 1))) << length << ", row " << row;
    }
  }
}

TEST(T5Test, TheTokenTableMayHaveEitherName) {
  const T5Params params = *ParseT5Config(kConfig);
  NamedTensors weights = RandomWeights(params);
  const at::Tensor expected = Encoded(params, weights);
  weights["encoder.embed_tokens.weight"] = weights.at("shared.weight");
  EXPECT_TRUE(at::equal(Encoded(params, weights), expected));
  weights.erase("shared.weight");
  EXPECT_TRUE(at::equal(Encoded(params, weights), expected));
  weights.erase("encoder.embed_tokens.weight");
  weights["encoder.block.1.layer.0.SelfAttention.relative_attention_bias.weight"] =
      at::zeros({32, 3});
  const auto refused = MakeT5Encoder(params, weights);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(refused.status().message().find("missing: shared.weight"), std::string::npos)
      << refused.status();
  EXPECT_NE(refused.status().message().find("unexpected: encoder.block.1"), std::string::npos);
}

TEST(T5Test, Umt5HasABiasPerBlock) {
  std::string config = kConfig;
  config.replace(config.find("\"t5\""), 4, "\"umt5\"");
  const T5Params params = *ParseT5Config(config);
  EXPECT_TRUE(params.bias_per_block);
  EXPECT_EQ(T5Shapes(params).size(), T5Shapes(*ParseT5Config(kConfig)).size() + 1);
}

TEST(T5Test, ConfigsOfOtherModelsAreRefused) {
  for (const char* config : {"[]", R"({"num_heads": 0, "feed_forward_proj": "gated-gelu"})",
                             R"({"feed_forward_proj": "relu"})", "{}",
                             R"({"relative_attention_num_buckets": 3,
                                 "feed_forward_proj": "gated-gelu"})"}) {
    EXPECT_EQ(ParseT5Config(config).status().code(), absl::StatusCode::kInvalidArgument) << config;
  }
}

}  // namespace
}  // namespace oxbow::model
