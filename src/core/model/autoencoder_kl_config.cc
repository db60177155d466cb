// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "core/model/autoencoder_kl.h"

namespace oxbow::model {
namespace {

using Json = nlohmann::json;
using Params = AutoencoderKlParams;

constexpr int64_t kSizeMax = 1 << 16;  // The largest number; keeps products inside 64 bits.
constexpr size_t kBlocksMax = 8;

struct Size {
  const char* key;
  int64_t Params::*member;
};
constexpr Size kSizes[] = {
    {"in_channels", &Params::in_channels},         {"out_channels", &Params::out_channels},
    {"latent_channels", &Params::latent_channels}, {"layers_per_block", &Params::layers_per_block},
    {"norm_num_groups", &Params::norm_num_groups}, {"sample_size", &Params::sample_size}};

struct Factor {
  const char* key;
  double Params::*member;
};
constexpr Factor kFactors[] = {{"scaling_factor", &Params::scaling_factor},
                               {"shift_factor", &Params::shift_factor}};

struct Flag {
  const char* key;
  bool Params::*member;
};
constexpr Flag kFlags[] = {{"use_quant_conv", &Params::use_quant_conv},
                           {"use_post_quant_conv", &Params::use_post_quant_conv},
                           {"mid_block_add_attention", &Params::mid_block_add_attention}};

absl::Status Bad(const std::string& what) {
  return absl::InvalidArgumentError("autoencoder config: " + what);
}

bool IsSize(const Json& value) {
  return value.is_number_integer() && value.get<int64_t>() >= 1 && value.get<int64_t>() <= kSizeMax;
}

absl::Status ReadWidths(const Json& value, Params& params) {
  if (!value.is_array() || value.empty() || value.size() > kBlocksMax) {
    return Bad("block_out_channels is not a list of widths: " + value.dump());
  }
  params.block_out_channels.clear();
  for (const Json& width : value) {
    if (!IsSize(width)) return Bad("block_out_channels holds no width: " + width.dump());
    params.block_out_channels.push_back(width.get<int64_t>());
  }
  return absl::OkStatus();
}

// All levels are of the one kind that there is here.
absl::Status CheckBlockTypes(const std::string& key, const Json& value) {
  const char* const supported =
      key == "down_block_types" ? "DownEncoderBlock2D" : "UpDecoderBlock2D";
  if (!value.is_array()) return Bad(key + " is not a list: " + value.dump());
  for (const Json& type : value) {
    if (type != supported) {
      return Bad(absl::StrCat(key, " other than ", supported, ": ", type.dump()));
    }
  }
  return absl::OkStatus();
}

absl::Status ReadKey(const std::string& key, const Json& value, Params& params) {
  for (const Size& size : kSizes) {
    if (key != size.key) continue;
    if (!IsSize(value)) return Bad(absl::StrCat(key, " is not a positive size: ", value.dump()));
    params.*size.member = value.get<int64_t>();
    return absl::OkStatus();
  }
  for (const Factor& factor : kFactors) {
    if (key != factor.key) continue;
    if (!value.is_number()) return Bad(absl::StrCat(key, " is not a number: ", value.dump()));
    params.*factor.member = value.get<double>();
    return absl::OkStatus();
  }
  for (const Flag& flag : kFlags) {
    if (key != flag.key) continue;
    if (!value.is_boolean()) return Bad(absl::StrCat(key, " is not true or false: ", value.dump()));
    params.*flag.member = value.get<bool>();
    return absl::OkStatus();
  }
  if (key == "block_out_channels") return ReadWidths(value, params);
  if (key == "down_block_types" || key == "up_block_types") return CheckBlockTypes(key, value);
  if (key == "force_upcast") return absl::OkStatus();  // It always runs in float32 here.
  if (key == "act_fn") {
    return value == "silu" ? absl::OkStatus() : Bad("act_fn other than silu: " + value.dump());
  }
  if (key == "latents_mean" || key == "latents_std") {
    return Bad(key + " per channel is not supported, only scaling_factor and shift_factor");
  }
  return Bad("unknown key, and its meaning may matter: " + key);
}

}  // namespace

absl::StatusOr<AutoencoderKlParams> ParseAutoencoderKlConfig(const std::string& config_json) {
  const Json json = Json::parse(config_json, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Bad("not a JSON object");
  Params params;
  for (const auto& [key, value] : json.items()) {
    if (key.starts_with("_") || value.is_null()) continue;
    OXBOW_RETURN_IF_ERROR(ReadKey(key, value, params));
  }
  for (const char* key : {"down_block_types", "up_block_types"}) {
    const auto types = json.find(key);
    const size_t count = types == json.end() || types->is_null() ? 1 : types->size();
    if (count != params.block_out_channels.size()) {
      return Bad(absl::StrCat(key, " and block_out_channels differ in length: ", count,
                              " != ", params.block_out_channels.size()));
    }
  }
  for (const int64_t width : params.block_out_channels) {
    if (width % params.norm_num_groups != 0) {
      return Bad(absl::StrCat("block_out_channels must be multiples of norm_num_groups: ", width,
                              ", ", params.norm_num_groups));
    }
  }
  if (!(params.scaling_factor > 0)) {
    return Bad(absl::StrCat("scaling_factor is not positive: ", params.scaling_factor));
  }
  return params;
}

}  // namespace oxbow::model
