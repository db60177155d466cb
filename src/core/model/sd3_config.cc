// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/json.h"
#include "base/status_macros.h"
#include "core/model/sd3.h"

namespace oxbow::model {
namespace {

using Json = nlohmann::json;

constexpr int64_t kSd3SizeMax = 1 << 20;  // The largest number; keeps products inside 64 bits.

struct Sd3Field {
  const char* key;
  int64_t Sd3Params::*member;
};

constexpr Sd3Field kSd3Fields[] = {{"sample_size", &Sd3Params::sample_size},
                                   {"patch_size", &Sd3Params::patch_size},
                                   {"in_channels", &Sd3Params::in_channels},
                                   {"num_layers", &Sd3Params::num_layers},
                                   {"attention_head_dim", &Sd3Params::attention_head_dim},
                                   {"num_attention_heads", &Sd3Params::num_attention_heads},
                                   {"joint_attention_dim", &Sd3Params::joint_attention_dim},
                                   {"caption_projection_dim", &Sd3Params::caption_projection_dim},
                                   {"pooled_projection_dim", &Sd3Params::pooled_projection_dim},
                                   {"out_channels", &Sd3Params::out_channels},
                                   {"pos_embed_max_size", &Sd3Params::pos_embed_max_size}};

absl::Status BadSd3(const std::string& what) {
  return absl::InvalidArgumentError("transformer config: " + what);
}

bool IsSd3Size(const Json& value, int64_t minimum) {
  return value.is_number_integer() && value.get<int64_t>() >= minimum &&
         value.get<int64_t>() <= kSd3SizeMax;
}

absl::Status ReadDualLayers(const Json& value, Sd3Params& params) {
  if (!value.is_array()) return BadSd3("dual_attention_layers is not a list");
  for (const Json& layer : value) {
    if (!IsSd3Size(layer, 0))
      return BadSd3("dual_attention_layers holds something else than indices");
    params.dual_attention_layers.push_back(layer.get<int64_t>());
  }
  return absl::OkStatus();
}

absl::Status ReadSd3Key(const std::string& key, const Json& value, Sd3Params& params) {
  for (const Sd3Field& field : kSd3Fields) {
    if (key != field.key) continue;
    if (!IsSd3Size(value, 1))
      return BadSd3(absl::StrCat(key, " is not a positive size: ", value.dump()));
    params.*field.member = value.get<int64_t>();
    return absl::OkStatus();
  }
  if (key == "dual_attention_layers") return ReadDualLayers(value, params);
  if (key == "qk_norm") {
    if (value != "rms_norm") return BadSd3("qk_norm other than rms_norm or null: " + value.dump());
    params.qk_rms_norm = true;
    return absl::OkStatus();
  }
  return BadSd3("unknown key, and its meaning may matter: " + key);
}

class Sd3Architecture final : public Architecture {
 public:
  explicit Sd3Architecture(Sd3Params params)
      : params_(std::move(params)),
        latent_{.channels = params_.in_channels,
                .side = params_.sample_size,
                .patch = {.height = params_.patch_size, .width = params_.patch_size},
                .side_max = params_.patch_size * params_.pos_embed_max_size},
        conditioning_{{kPromptTokens, {kPromptLength, params_.joint_attention_dim}},
                      {kPooledPrompt, {params_.pooled_projection_dim}}} {}

  const std::string& class_name() const override { return class_name_; }
  const LatentGeometry& latent() const override { return latent_; }
  const std::vector<ConditioningPart>& conditioning() const override { return conditioning_; }
  Shapes shapes() const override { return Sd3Shapes(params_); }
  LinearModules linears() const override { return Sd3Linears(params_); }
  const std::set<std::string>& buffers() const override { return buffers_; }
  uint64_t ActivationBytes(const Execution& execution, const ForwardSize& size) const override {
    return Sd3ActivationBytes(params_, execution, size);
  }
  uint64_t SamplingBytes(const Execution& execution, const ForwardSize& size) const override {
    return Sd3SamplingBytes(params_, execution, size);
  }
  absl::StatusOr<std::unique_ptr<VelocityModel>> Make(const NamedTensors& weights,
                                                      const LoraAdapter* adapter,
                                                      const Execution& execution) const override {
    return MakeSd3Transformer(params_, weights, adapter, execution);
  }

 private:
  const std::string class_name_ = kSd3ClassName;
  const Sd3Params params_;
  const LatentGeometry latent_;
  const std::vector<ConditioningPart> conditioning_;
  const std::set<std::string> buffers_ = {kSd3PositionTable};
};

}  // namespace

absl::StatusOr<Sd3Params> ParseSd3Config(const std::string& config_json) {
  const Json json = ParseJson(config_json);
  if (!json.is_object()) return BadSd3("not a JSON object");
  Sd3Params params;
  for (const auto& [key, value] : json.items()) {
    if (key.starts_with("_") || value.is_null()) continue;
    OXBOW_RETURN_IF_ERROR(ReadSd3Key(key, value, params));
  }
  if (!json.contains("out_channels") || json["out_channels"].is_null()) {
    params.out_channels = params.in_channels;
  }
  if (params.caption_projection_dim != params.width()) {
    return BadSd3(absl::StrCat("caption_projection_dim must equal heads * head_dim: ",
                               params.caption_projection_dim, " != ", params.width()));
  }
  if (params.width() % 4 != 0)
    return BadSd3(absl::StrCat("width not a multiple of 4: ", params.width()));
  return params;
}

std::shared_ptr<const Architecture> MakeSd3Architecture(Sd3Params params) {
  return std::make_shared<const Sd3Architecture>(std::move(params));
}

absl::StatusOr<std::shared_ptr<const Architecture>> ReadSd3Architecture(
    const std::string& config_json) {
  OXBOW_ASSIGN_OR_RETURN(Sd3Params params, ParseSd3Config(config_json));
  return MakeSd3Architecture(std::move(params));
}

std::string Sd3ConfigJson(const Sd3Params& params) {
  nlohmann::ordered_json json;
  json["_class_name"] = kSd3ClassName;
  json["_diffusers_version"] = "0.31.0";
  for (const Sd3Field& field : kSd3Fields) json[field.key] = params.*field.member;
  json["dual_attention_layers"] = params.dual_attention_layers;
  json["qk_norm"] = params.qk_rms_norm ? Json("rms_norm") : Json();
  return json.dump(2) + "\n";
}

}  // namespace oxbow::model
