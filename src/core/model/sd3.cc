// SPDX-License-Identifier: Apache-2.0
#include "core/model/sd3.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "core/model/binding.h"
#include "core/model/device.h"
#include "core/model/layers.h"
#include "core/model/offloaded_weights.h"
#include "core/model/recompute.h"

namespace oxbow::model {
namespace {

constexpr int64_t kTimestepWidth = 256;
constexpr double kTimestepsPerSigma = 1000;
constexpr int64_t kFeedForwardFactor = 4;

struct FeedForward {
  FeedForward(Binding& bind, const std::string& name, int64_t width)
      : in(bind.TakeLinear(name + ".net.0.proj", width, kFeedForwardFactor * width)),
        out(bind.TakeLinear(name + ".net.2", kFeedForwardFactor * width, width)) {}
  at::Tensor operator()(const at::Tensor& x) const { return out(GeluTanh(in(x))); }
  Linear in, out;
};

struct Qkv {
  at::Tensor q, k, v;  // [B, T, heads, d]
};

// Queries, keys and values of one stream of tokens.
struct Projections {
  Projections(Binding& bind, const std::array<std::string, 3>& modules, const std::string& norm_q,
              const std::string& norm_k, const Sd3Params& params)
      : heads(params.num_attention_heads), head_dim(params.attention_head_dim) {
    for (size_t i = 0; i < 3; ++i) {
      linears[i] = bind.TakeLinear(modules[i], params.width(), params.width());
    }
    if (!params.qk_rms_norm) return;
    norm_query = bind.Take(norm_q + ".weight", {head_dim});
    norm_key = bind.Take(norm_k + ".weight", {head_dim});
  }

  Qkv operator()(const at::Tensor& x) const {
    const auto parts = ApplyEach(x, linears);
    return {RmsNorm(Heads(parts[0]), norm_query), RmsNorm(Heads(parts[1]), norm_key),
            Heads(parts[2])};
  }

  // For tokens that are attended to but attend to nothing.
  Qkv WithoutQueries(const at::Tensor& x) const {
    const auto parts = ApplyEach(x, at::ArrayRef<Linear>(linears).slice(1));
    return {at::Tensor(), RmsNorm(Heads(parts[0]), norm_key), Heads(parts[1])};
  }

  // [B, T, heads * d] as [B, T, heads, d].
  at::Tensor Heads(const at::Tensor& x) const {
    return x.view({x.size(0), x.size(1), heads, head_dim});
  }

  int64_t heads, head_dim;
  std::array<Linear, 3> linears;
  at::Tensor norm_query, norm_key;  // [head_dim], or undefined
};

// Shift, scale and gate per sample, [B, D] each, from one linear layer.
std::vector<at::Tensor> Modulation(const Linear& linear, const at::Tensor& s) {
  return linear(s).chunk(linear.weight.size(0) / linear.weight.size(1), 1);
}

// The tokens of o before n, and those from there on if there are any. On a CPU they have one
// gradient, where each of two views has one that is filled up with zeros.
std::vector<at::Tensor> Streams(const at::Tensor& o, int64_t n) {
  const int64_t rest = o.size(1) - n;
  if (rest == 0) return {o};
  if (o.is_cpu()) return o.split_with_sizes({n, rest}, 1);
  return {o.narrow(1, 0, n), o.narrow(1, n, rest)};
}

// One joint block. X [B, N, D] are image tokens, Y [B, S, D] prompt tokens, s [B, D] the condition.
class JointBlock {
 public:
  JointBlock(Binding& bind, const Sd3Params& params, int64_t index)
      : name_(absl::StrCat("transformer_blocks.", index)),
        dual_(std::count(params.dual_attention_layers.begin(), params.dual_attention_layers.end(),
                         index) > 0),
        last_(index + 1 == params.num_layers),
        norm1_(bind.TakeLinear(name_ + ".norm1.linear", params.width(),
                               (dual_ ? 9 : 6) * params.width())),
        norm1_context_(bind.TakeLinear(name_ + ".norm1_context.linear", params.width(),
                                       (last_ ? 2 : 6) * params.width())),
        image_(bind, Modules("attn", {"to_q", "to_k", "to_v"}), name_ + ".attn.norm_q",
               name_ + ".attn.norm_k", params),
        context_(bind, Modules("attn", {"add_q_proj", "add_k_proj", "add_v_proj"}),
                 name_ + ".attn.norm_added_q", name_ + ".attn.norm_added_k", params),
        to_out_(bind.TakeLinear(name_ + ".attn.to_out.0", params.width(), params.width())),
        ff_(bind, name_ + ".ff", params.width()) {
    if (!last_) {
      to_add_out_ = bind.TakeLinear(name_ + ".attn.to_add_out", params.width(), params.width());
      ff_context_.emplace(bind, name_ + ".ff_context", params.width());
    }
    if (dual_) {
      image2_.emplace(bind, Modules("attn2", {"to_q", "to_k", "to_v"}), name_ + ".attn2.norm_q",
                      name_ + ".attn2.norm_k", params);
      to_out2_ = bind.TakeLinear(name_ + ".attn2.to_out.0", params.width(), params.width());
    }
  }

  std::pair<at::Tensor, at::Tensor> operator()(at::Tensor X, at::Tensor Y,
                                               const at::Tensor& s) const {
    const auto m =
        Modulation(norm1_, s);  // shift, scale, gate; of the mlp; of the second attention
    const auto k = Modulation(norm1_context_, s);
    // The last block's prompt tokens go no further, so they need no queries; its scale comes first.
    const Qkv joint = Joint(NormModulate(X, m[1], m[0]),
                            last_ ? NormModulate(Y, k[0], k[1]) : NormModulate(Y, k[1], k[0]));
    const at::Tensor o = Attend(joint.q, joint.k, joint.v, false);
    const int64_t n = X.size(1);
    const auto parts = Streams(o, n);
    // The second attention reads the block's input, not what the first one made of it.
    const at::Tensor second = dual_ ? Second(NormModulate(X, m[7], m[6])) : at::Tensor();
    X = AddGated(X, m[2], to_out_(parts[0]));
    if (dual_) X = AddGated(X, m[8], second);
    X = AddGated(X, m[5], ff_(NormModulate(X, m[4], m[3])));
    if (last_) return {X, Y};
    Y = AddGated(Y, k[2], to_add_out_(parts[1]));
    Y = AddGated(Y, k[5], (*ff_context_)(NormModulate(Y, k[4], k[3])));
    return {X, Y};
  }

 private:
  std::array<std::string, 3> Modules(const char* attention,
                                     const std::array<const char*, 3>& names) const {
    const std::string prefix = absl::StrCat(name_, ".", attention, ".");
    return {prefix + names[0], prefix + names[1], prefix + names[2]};
  }

  // Queries, keys and values by which image tokens x and prompt tokens y attend.
  Qkv Joint(const at::Tensor& x, const at::Tensor& y) const {
    const Qkv image = image_(x);
    const Qkv context = last_ ? context_.WithoutQueries(y) : context_(y);
    return {last_ ? image.q : at::cat({image.q, context.q}, 1), at::cat({image.k, context.k}, 1),
            at::cat({image.v, context.v}, 1)};
  }

  at::Tensor Second(const at::Tensor& x) const {
    const Qkv own = (*image2_)(x);
    return to_out2_(Attend(own.q, own.k, own.v, false));
  }

  const std::string name_;
  const bool dual_;
  const bool last_;
  const Linear norm1_, norm1_context_;
  const Projections image_, context_;
  const Linear to_out_;
  const FeedForward ff_;
  Linear to_add_out_, to_out2_;
  std::optional<FeedForward> ff_context_;
  std::optional<Projections> image2_;
};

class Sd3Transformer final : public VelocityModel {
 public:
  Sd3Transformer(Binding& bind, const Sd3Params& p, Execution execution)
      : params_(p),
        execution_(execution),
        position_table_(bind.Take(kSd3PositionTable,
                                  {1, p.pos_embed_max_size * p.pos_embed_max_size, p.width()})),
        patch_weight_(bind.Take("pos_embed.proj.weight",
                                {p.width(), p.in_channels, p.patch_size, p.patch_size})),
        patch_bias_(bind.Take("pos_embed.proj.bias", {p.width()})),
        time1_(bind.TakeLinear("time_text_embed.timestep_embedder.linear_1", kTimestepWidth,
                               p.width())),
        time2_(bind.TakeLinear("time_text_embed.timestep_embedder.linear_2", p.width(), p.width())),
        text1_(bind.TakeLinear("time_text_embed.text_embedder.linear_1", p.pooled_projection_dim,
                               p.width())),
        text2_(bind.TakeLinear("time_text_embed.text_embedder.linear_2", p.width(), p.width())),
        context_embedder_(bind.TakeLinear("context_embedder", p.joint_attention_dim, p.width())),
        norm_out_(bind.TakeLinear("norm_out.linear", p.width(), 2 * p.width())),
        proj_out_(
            bind.TakeLinear("proj_out", p.width(), p.patch_size * p.patch_size * p.out_channels)) {
    for (int64_t i = 0; i < p.num_layers; ++i) {
      bind.TakeHandedOut();  // Earlier weights belong to no block.
      blocks_.emplace_back(bind, p, i);
      block_weights_.push_back(WeightsOfBlock(bind.TakeHandedOut(), execution.offloaded));
    }
    if (execution.offloaded != nullptr) execution.offloaded->EndNetwork();
  }

  at::Tensor Predict(const at::Tensor& x, const at::Tensor& sigma,
                     const Conditioning& conditioning) const override {
    const int64_t rows = x.size(0);
    const at::Device device = position_table_.device();
    const AutocastScope autocast(device.type(), execution_.compute);
    // A GPU's libraries choose other ways for other numbers of rows, however many there are.
    // A row that many share is sent there once.
    const auto there = [&](const at::Tensor& input) {
      const at::Tensor all = BroadcastRows(input.to(device), rows);
      return device.is_cpu() ? PadRows(all) : all;
    };
    const at::Tensor v = Padded(there(x), there(sigma), there(conditioning.at(kPromptTokens)),
                                there(conditioning.at(kPooledPrompt)))
                             .to(x.device(), at::kFloat);
    return v.size(0) == rows ? v : v.narrow(0, 0, rows);
  }

 private:
  at::Tensor Padded(const at::Tensor& x, const at::Tensor& sigma, const at::Tensor& tokens,
                    const at::Tensor& pooled) const {
    const at::Tensor s = Condition(sigma, pooled);            // [B, D]
    at::Tensor X = Patches(x);                                // [B, N, D]
    at::Tensor Y = context_embedder_(tokens).to(at::kFloat);  // [B, S, D]
    for (size_t i = 0; i < blocks_.size(); ++i) {
      if (execution_.checkpoint_activations) {
        Recompute(i, s, X, Y);
      } else {
        std::tie(X, Y) = blocks_[i](X, Y, s);
      }
    }
    const auto scale_shift = Modulation(norm_out_, s);
    return Image(proj_out_(NormModulate(X, scale_shift[0], scale_shift[1])), x.size(2), x.size(3));
  }

  // The last block returns its prompt tokens unchanged, and they are not used.
  void Recompute(size_t i, const at::Tensor& s, at::Tensor& X, at::Tensor& Y) const {
    const bool last = i + 1 == blocks_.size();
    const Segment segment = [&block = blocks_[i], last,
                             compute = execution_.compute](const Tensors& in) -> Tensors {
      const AutocastScope autocast(in[0].device().type(), compute);
      auto [image, context] = block(in[0], in[1], in[2]);
      if (last) return {image};
      return {image, context};
    };
    const Tensors out = Recomputed(segment, {X, Y, s}, block_weights_[i]);
    X = out[0];
    if (!last) Y = out[1];
  }

  at::Tensor Condition(const at::Tensor& sigma, const at::Tensor& pooled) const {
    const at::Tensor time = time2_(at::silu(time1_(TimestepEmbedding(sigma * kTimestepsPerSigma))));
    return at::silu(time + text2_(at::silu(text1_(pooled))));
  }

  // The convolution of stride and size p as a matrix product, plus the table's centre crop.
  at::Tensor Patches(const at::Tensor& x) const {
    const int64_t p = params_.patch_size, height = x.size(2) / p, width = x.size(3) / p;
    const int64_t side = params_.pos_embed_max_size, d = params_.width();
    OXBOW_CHECK(x.size(1) == params_.in_channels && x.size(2) % p == 0 && x.size(3) % p == 0 &&
                height <= side && width <= side)
        << "latents " << x.sizes() << " do not fit patches of " << p << ", at most " << side
        << " a side";
    const at::Tensor patches = x.view({x.size(0), x.size(1), height, p, width, p})
                                   .permute({0, 2, 4, 1, 3, 5})
                                   .reshape({x.size(0) * height * width, -1});
    const at::Tensor embedded = at::addmm(patch_bias_, patches, patch_weight_.view({d, -1}).t());
    const at::Tensor crop = position_table_.view({side, side, d})
                                .narrow(0, (side - height) / 2, height)
                                .narrow(1, (side - width) / 2, width);
    return embedded.view({x.size(0), height * width, d}) + crop.reshape({1, height * width, d});
  }

  at::Tensor Image(const at::Tensor& tokens, int64_t height, int64_t width) const {
    const int64_t p = params_.patch_size, c = params_.out_channels;
    return tokens.view({tokens.size(0), height / p, width / p, p, p, c})
        .permute({0, 5, 1, 3, 2, 4})
        .reshape({tokens.size(0), c, height, width});
  }

  const Sd3Params params_;
  const Execution execution_;
  const at::Tensor position_table_, patch_weight_, patch_bias_;
  const Linear time1_, time2_, text1_, text2_, context_embedder_, norm_out_, proj_out_;
  std::vector<JointBlock> blocks_;
  std::vector<SegmentWeights> block_weights_;
};

}  // namespace

Shapes Sd3Shapes(const Sd3Params& params) {
  Binding bind;
  const Sd3Transformer shape_only(bind, params, {});
  return bind.shapes();
}

LinearModules Sd3Linears(const Sd3Params& params) {
  Binding bind;
  const Sd3Transformer shape_only(bind, params, {});
  return bind.linears();
}

absl::StatusOr<std::unique_ptr<VelocityModel>> MakeSd3Transformer(const Sd3Params& params,
                                                                  const NamedTensors& tensors,
                                                                  const LoraAdapter* adapter,
                                                                  Execution execution) {
  Binding bind(tensors, adapter);
  auto model = std::make_unique<Sd3Transformer>(bind, params, execution);
  OXBOW_RETURN_IF_ERROR(bind.Finish());
  return model;
}

}  // namespace oxbow::model
