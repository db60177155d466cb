// SPDX-License-Identifier: Apache-2.0

#include "absl/strings/str_cat.h"
#include "base/json.h"
#include "base/status_macros.h"
#include "core/model/autoencoder_kl.h"

namespace oxbow::model {
namespace {

using Json = nlohmann::json;
using KlParams = AutoencoderKlParams;

constexpr int64_t kKlSizeMax = 1 << 16;  // The largest number; keeps products inside 64 bits.
constexpr size_t kKlBlocksMax = 8;

struct KlSize {
  const char* key;
  int64_t KlParams::*member;
};
constexpr KlSize kSizes[] = {{"in_channels", &KlParams::in_channels},
                             {"out_channels", &KlParams::out_channels},
                             {"latent_channels", &KlParams::latent_channels},
                             {"layers_per_block", &KlParams::layers_per_block},
                             {"norm_num_groups", &KlParams::norm_num_groups},
                             {"sample_size", &KlParams::sample_size}};

struct Factor {
  const char* key;
  double KlParams::*member;
};
constexpr Factor kFactors[] = {{"scaling_factor", &KlParams::scaling_factor},
                               {"shift_factor", &KlParams::shift_factor}};

struct Flag {
  const char* key;
  bool KlParams::*member;
};
constexpr Flag kFlags[] = {{"use_quant_conv", &KlParams::use_quant_conv},
                           {"use_post_quant_conv", &KlParams::use_post_quant_conv},
                           {"mid_block_add_attention", &KlParams::mid_block_add_attention}};

absl::Status BadKl(const std::string& what) {
  return absl::InvalidArgumentError("autoencoder config: " + what);
}

bool IsKlSize(const Json& value) {
  return value.is_number_integer() && value.get<int64_t>() >= 1 &&
         value.get<int64_t>() <= kKlSizeMax;
}

absl::Status ReadWidths(const Json& value, KlParams& params) {
  if (!value.is_array() || value.empty() || value.size() > kKlBlocksMax) {
    return BadKl("block_out_channels is not a list of widths: " + JsonText(value));
  }
  params.block_out_channels.clear();
  for (const Json& width : value) {
    if (!IsKlSize(width)) return BadKl("block_out_channels holds no width: " + JsonText(width));
    params.block_out_channels.push_back(width.get<int64_t>());
  }
  return absl::OkStatus();
}

// All levels are of the one kind that there is here.
absl::Status CheckBlockTypes(const std::string& key, const Json& value) {
  const char* const supported =
      key == "down_block_types" ? "DownEncoderBlock2D" : "UpDecoderBlock2D";
  if (!value.is_array()) return BadKl(key + " is not a list: " + JsonText(value));
  for (const Json& type : value) {
    if (type != supported) {
      return BadKl(absl::StrCat(key, " other than ", supported, ": ", JsonText(type)));
    }
  }
  return absl::OkStatus();
}

absl::Status ReadKlKey(const std::string& key, const Json& value, KlParams& params) {
  for (const KlSize& size : kSizes) {
    if (key != size.key) continue;
    if (!IsKlSize(value))
      return BadKl(absl::StrCat(key, " is not a positive size: ", JsonText(value)));
    params.*size.member = value.get<int64_t>();
    return absl::OkStatus();
  }
  for (const Factor& factor : kFactors) {
    if (key != factor.key) continue;
    if (!value.is_number()) return BadKl(absl::StrCat(key, " is not a number: ", JsonText(value)));
    params.*factor.member = value.get<double>();
    return absl::OkStatus();
  }
  for (const Flag& flag : kFlags) {
    if (key != flag.key) continue;
    if (!value.is_boolean())
      return BadKl(absl::StrCat(key, " is not true or false: ", JsonText(value)));
    params.*flag.member = value.get<bool>();
    return absl::OkStatus();
  }
  if (key == "block_out_channels") return ReadWidths(value, params);
  if (key == "down_block_types" || key == "up_block_types") return CheckBlockTypes(key, value);
  if (key == "force_upcast") return absl::OkStatus();  // It always runs in float32 here.
  if (key == "act_fn") {
    return value == "silu" ? absl::OkStatus() : BadKl("act_fn other than silu: " + JsonText(value));
  }
  if (key == "latents_mean" || key == "latents_std") {
    return BadKl(key + " per channel is not supported, only scaling_factor and shift_factor");
  }
  return BadKl("unknown key, and its meaning may matter: " + key);
}

}  // namespace

absl::StatusOr<AutoencoderKlParams> ParseAutoencoderKlConfig(const std::string& config_json) {
  const Json json = ParseJson(config_json);
  if (!json.is_object()) return BadKl("not a JSON object");
  KlParams params;
  for (const auto& [key, value] : json.items()) {
    if (key.starts_with("_") || value.is_null()) continue;
    OXBOW_RETURN_IF_ERROR(ReadKlKey(key, value, params));
  }
  for (const char* key : {"down_block_types", "up_block_types"}) {
    const auto types = json.find(key);
    const size_t count = types == json.end() || types->is_null() ? 1 : types->size();
    if (count != params.block_out_channels.size()) {
      return BadKl(absl::StrCat(key, " and block_out_channels differ in length: ", count,
                                " != ", params.block_out_channels.size()));
    }
  }
  for (const int64_t width : params.block_out_channels) {
    if (width % params.norm_num_groups != 0) {
      return BadKl(absl::StrCat("block_out_channels must be multiples of norm_num_groups: ", width,
                                ", ", params.norm_num_groups));
    }
  }
  if (!(params.scaling_factor > 0)) {
    return BadKl(absl::StrCat("scaling_factor is not positive: ", params.scaling_factor));
  }
  return params;
}

}  // namespace oxbow::model
