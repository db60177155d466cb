// SPDX-License-Identifier: Apache-2.0
#include "core/model/t5.h"

#include <ATen/ATen.h>

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/json.h"
#include "base/status_macros.h"
#include "core/model/binding.h"
#include "core/model/config_sizes.h"
#include "core/model/layers.h"

namespace oxbow::model {
namespace {

constexpr char kTokens[] = "shared.weight";
constexpr char kTokensToo[] = "encoder.embed_tokens.weight";

struct T5Norm {
  T5Norm(Binding& bind, const std::string& name, const T5Params& p)
      : weight(bind.Take(name + ".weight", {p.d_model})), eps(p.layer_norm_epsilon) {}
  // x float32 -> the type of the weights.
  at::Tensor operator()(const at::Tensor& x) const {
    const at::Tensor unit = x * at::rsqrt(x.square().mean(-1, /*keepdim=*/true) + eps);
    return weight * unit.to(weight.scalar_type());
  }
  at::Tensor weight;
  double eps;
};

// Bucket of each (query, key) pair [S, S]: half of them for keys behind the query.
at::Tensor BucketsOf(int64_t length, const T5Params& p, at::Device device) {
  const at::Tensor position = at::arange(length, at::TensorOptions(at::kLong).device(device));
  const at::Tensor ahead = position.unsqueeze(0) - position.unsqueeze(1);  // key - query
  const int64_t buckets = p.relative_attention_num_buckets / 2;
  const int64_t exact = buckets / 2;
  const at::Tensor distance = ahead.abs();
  const double octaves =
      std::log(static_cast<double>(p.relative_attention_max_distance) / static_cast<double>(exact));
  const at::Tensor far =
      (exact +
       (at::log(distance.to(at::kFloat) / exact) / octaves * (buckets - exact)).to(at::kLong))
          .clamp_max(buckets - 1);
  return ahead.gt(0).to(at::kLong) * buckets + at::where(distance.lt(exact), distance, far);
}

class RelativeBias {
 public:
  RelativeBias(Binding& bind, const std::string& attention, const T5Params& p)
      : params_(p),
        table_(bind.Take(attention + ".relative_attention_bias.weight",
                         {p.relative_attention_num_buckets, p.num_heads})) {}
  at::Tensor operator()(int64_t length) const {  // [1, heads, S, S]
    return at::embedding(table_, BucketsOf(length, params_, table_.device()))
        .permute({2, 0, 1})
        .unsqueeze(0);
  }

 private:
  const T5Params params_;
  const at::Tensor table_;
};

class T5Block {
 public:
  T5Block(Binding& bind, const T5Params& p, int64_t index)
      : T5Block(bind, p, absl::StrCat("encoder.block.", index, ".layer.")) {}

  // x [B, S, D] float32; bias [B or 1, heads, S, S].
  at::Tensor operator()(const at::Tensor& x, const at::Tensor& bias) const {
    const at::Tensor y = x + Attend(norm1_(x), bias);
    const at::Tensor n = norm2_(y);
    const at::Tensor gated = GeluTanh(wi_0_(n)) * wi_1_(n);
    return y + wo_(gated.to(wo_.weight.scalar_type()));
  }

 private:
  T5Block(Binding& bind, const T5Params& p, const std::string& layer)
      : heads_(p.num_heads),
        norm1_(bind, layer + "0.layer_norm", p),
        norm2_(bind, layer + "1.layer_norm", p),
        q_(Plain(bind, layer + "0.SelfAttention.q", p.d_model, p.num_heads * p.d_kv)),
        k_(Plain(bind, layer + "0.SelfAttention.k", p.d_model, p.num_heads * p.d_kv)),
        v_(Plain(bind, layer + "0.SelfAttention.v", p.d_model, p.num_heads * p.d_kv)),
        o_(Plain(bind, layer + "0.SelfAttention.o", p.num_heads * p.d_kv, p.d_model)),
        wi_0_(Plain(bind, layer + "1.DenseReluDense.wi_0", p.d_model, p.d_ff)),
        wi_1_(Plain(bind, layer + "1.DenseReluDense.wi_1", p.d_model, p.d_ff)),
        wo_(Plain(bind, layer + "1.DenseReluDense.wo", p.d_ff, p.d_model)) {}

  static Linear Plain(Binding& bind, const std::string& name, int64_t in, int64_t out) {
    return bind.TakeLinear(name, in, out, /*bias=*/false);
  }

  at::Tensor Attend(const at::Tensor& x, const at::Tensor& bias) const {
    const auto heads = [&](const at::Tensor& y) {
      return y.view({x.size(0), x.size(1), heads_, -1}).transpose(1, 2);
    };
    const at::Tensor o =
        at::scaled_dot_product_attention(heads(q_(x)), heads(k_(x)), heads(v_(x)), bias,
                                         /*dropout_p=*/0.0, /*is_causal=*/false, /*scale=*/1.0);
    return o_(o.transpose(1, 2).reshape({x.size(0), x.size(1), -1}));
  }

  const int64_t heads_;
  const T5Norm norm1_, norm2_;
  const Linear q_, k_, v_, o_;
  const Linear wi_0_, wi_1_, wo_;
};

class T5 final : public T5Encoder {
 public:
  T5(Binding& bind, const T5Params& p)
      : tokens_(bind.Take(kTokens, {p.vocab_size, p.d_model})),
        final_norm_(bind, "encoder.final_layer_norm", p) {
    for (int64_t i = 0; i < p.num_layers; ++i) {
      blocks_.emplace_back(bind, p, i);
      if (i > 0 && !p.bias_per_block) continue;
      biases_.emplace_back(bind, absl::StrCat("encoder.block.", i, ".layer.0.SelfAttention"), p);
    }
  }

  at::Tensor Encode(const at::Tensor& ids, const at::Tensor& mask) const override {
    OXBOW_CHECK(ids.dim() == 2 && (!mask.defined() || mask.sizes() == ids.sizes()))
        << "ids " << ids.sizes();
    // A row of few tokens alone must go the way it goes with others.
    const bool short_rows = ids.size(1) < kRowsMin;
    const at::Tensor padded = short_rows ? PadRows(ids) : ids;
    const at::Tensor padded_mask = short_rows && mask.defined() ? PadRows(mask) : mask;
    at::Tensor x = at::embedding(tokens_, padded).to(at::kFloat);
    at::Tensor bias;
    for (size_t i = 0; i < blocks_.size(); ++i) {
      if (i < biases_.size()) bias = Masked(biases_[i](ids.size(1)), padded_mask);
      x = blocks_[i](x, bias);
    }
    return final_norm_(x).to(at::kFloat).narrow(0, 0, ids.size(0));
  }

 private:
  static at::Tensor Masked(const at::Tensor& bias, const at::Tensor& mask) {
    if (!mask.defined()) return bias;
    const at::Tensor hidden = mask.logical_not().unsqueeze(1).unsqueeze(1);  // [B, 1, 1, S]
    return bias.masked_fill(hidden, -std::numeric_limits<double>::infinity());
  }

  const at::Tensor tokens_;
  const T5Norm final_norm_;
  std::vector<T5Block> blocks_;
  std::vector<RelativeBias> biases_;  // One, or one per block.
};

constexpr SizeKey<T5Params> kT5Fields[] = {
    {"vocab_size", &T5Params::vocab_size},
    {"d_model", &T5Params::d_model},
    {"d_kv", &T5Params::d_kv},
    {"d_ff", &T5Params::d_ff},
    {"num_layers", &T5Params::num_layers},
    {"num_heads", &T5Params::num_heads},
    {"relative_attention_num_buckets", &T5Params::relative_attention_num_buckets},
    {"relative_attention_max_distance", &T5Params::relative_attention_max_distance}};
constexpr int64_t kT5SizeMax = 1 << 20;

absl::Status BadT5(const std::string& what) {
  return absl::InvalidArgumentError("T5 encoder config: " + what);
}

// transformers writes "feed_forward_proj" and derives the two others from it.
absl::Status CheckActivation(const nlohmann::json& json) {
  const std::string projection =
      json.contains("feed_forward_proj") && json["feed_forward_proj"].is_string()
          ? json["feed_forward_proj"].get<std::string>()
          : "relu";
  if (projection == "gated-gelu" || projection == "gated-gelu_new") return absl::OkStatus();
  return BadT5("feed_forward_proj other than gated-gelu (is this the first T5, not v1.1?): " +
               projection);
}

}  // namespace

absl::StatusOr<T5Params> ParseT5Config(const std::string& config_json) {
  const nlohmann::json json = ParseJson(config_json);
  if (!json.is_object()) return BadT5("not a JSON object");
  T5Params params;
  OXBOW_RETURN_IF_ERROR(ReadSizes(json, kT5Fields, kT5SizeMax, "T5 encoder config", params));
  if (json.contains("layer_norm_epsilon")) {
    if (!json["layer_norm_epsilon"].is_number()) return BadT5("layer_norm_epsilon is not a number");
    params.layer_norm_epsilon = json["layer_norm_epsilon"].get<double>();
  }
  const int64_t exact = params.relative_attention_num_buckets / 4;
  if (exact < 1 || params.relative_attention_max_distance <= exact) {
    return BadT5(absl::StrCat(
        "relative_attention_num_buckets must be at least 4, and a quarter of it "
        "less than relative_attention_max_distance: ",
        params.relative_attention_num_buckets, ", ", params.relative_attention_max_distance));
  }
  params.bias_per_block = json.contains("model_type") && json["model_type"] == "umt5";
  OXBOW_RETURN_IF_ERROR(CheckActivation(json));
  return params;
}

Shapes T5Shapes(const T5Params& params) {
  Binding bind;
  const T5 shape_only(bind, params);
  return bind.shapes();
}

std::string PublishedT5Name(const std::string& name) { return name == kTokensToo ? kTokens : name; }

at::ScalarType T5StorageType(const std::string& name, at::ScalarType type) {
  return type == at::kHalf && name.ends_with(".wo.weight") ? at::kFloat : type;
}

absl::StatusOr<std::unique_ptr<T5Encoder>> MakeT5Encoder(const T5Params& params,
                                                         const NamedTensors& tensors) {
  NamedTensors weights = tensors;
  if (const auto other = weights.find(kTokensToo); other != weights.end()) {
    const auto [tokens, alone] = weights.try_emplace(kTokens, other->second);
    if (!alone && !at::equal(tokens->second, other->second)) {
      return BadT5(
          absl::StrCat(kTokens, " and ", kTokensToo,
                       " differ, and an encoder has one table of tokens: remove the one that "
                       "is not meant"));
    }
    weights.erase(other);
  }
  Binding bind(weights, nullptr);
  auto encoder = std::make_unique<T5>(bind, params);
  OXBOW_RETURN_IF_ERROR(bind.Finish());
  return encoder;
}

}  // namespace oxbow::model
