// SPDX-License-Identifier: Apache-2.0

#include "absl/strings/str_cat.h"
#include "base/json.h"
#include "base/status_macros.h"
#include "core/model/autoencoder_kl_wan.h"

namespace oxbow::model {
namespace {

using Json = nlohmann::json;
using WanParams = AutoencoderKlWanParams;

constexpr int64_t kWanSizeMax = 1 << 14;  // The largest number; keeps products inside 64 bits.
constexpr int64_t kMultipleMax = 1 << 8;  // The largest in dim_mult.
constexpr int64_t kWanBlocksMax = 1 << 8;
constexpr size_t kLevelsMax = 8;

const std::vector<double> kWanMean = {-0.7571, -0.7089, -0.9113, 0.1075,  -0.1745, 0.9653,
                                      -0.1517, 1.5508,  0.4134,  -0.0715, 0.5517,  -0.3632,
                                      -0.1922, -0.9497, 0.2503,  -0.2921};
const std::vector<double> kWanStd = {2.8184, 1.4541, 2.3275, 2.6558, 1.2196, 1.7708,
                                     2.6052, 2.0743, 3.2687, 2.1526, 2.8652, 1.5579,
                                     1.6382, 1.1253, 2.8251, 1.9160};

struct WanSize {
  const char* key;
  int64_t WanParams::*member;
  int64_t most;
};
constexpr WanSize kWanSizes[] = {{"base_dim", &WanParams::base_dim, kWanSizeMax},
                                 {"decoder_base_dim", &WanParams::decoder_base_dim, kWanSizeMax},
                                 {"z_dim", &WanParams::z_dim, kWanSizeMax},
                                 {"num_res_blocks", &WanParams::num_res_blocks, kWanBlocksMax},
                                 {"in_channels", &WanParams::in_channels, kWanSizeMax},
                                 {"out_channels", &WanParams::out_channels, kWanSizeMax}};

absl::Status BadWan(const std::string& what) {
  return absl::InvalidArgumentError("autoencoder config: " + what);
}

bool IsWanSize(const Json& value, int64_t most) {
  return value.is_number_integer() && value >= 1 && value <= most;
}

absl::Status ReadMultiples(const Json& value, WanParams& params) {
  if (!value.is_array() || value.empty() || value.size() > kLevelsMax) {
    return BadWan("dim_mult is not a list of 1 to 8 multiples: " + JsonText(value));
  }
  params.dim_mult.clear();
  for (const Json& multiple : value) {
    if (!IsWanSize(multiple, kMultipleMax))
      return BadWan("dim_mult holds no multiple: " + JsonText(multiple));
    params.dim_mult.push_back(multiple.get<int64_t>());
  }
  return absl::OkStatus();
}

absl::Status ReadHalvings(const Json& value, WanParams& params) {
  if (!value.is_array()) return BadWan("temperal_downsample is not a list: " + JsonText(value));
  params.temperal_downsample.clear();
  for (const Json& halves : value) {
    if (!halves.is_boolean()) {
      return BadWan("temperal_downsample holds neither true nor false: " + JsonText(halves));
    }
    params.temperal_downsample.push_back(halves.get<bool>());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<double>> PerChannel(const std::string& key, const Json& value) {
  if (!value.is_array()) return BadWan(absl::StrCat(key, " is not a list: ", JsonText(value)));
  std::vector<double> numbers;
  for (const Json& number : value) {
    if (!number.is_number())
      return BadWan(absl::StrCat(key, " holds no number: ", JsonText(number)));
    numbers.push_back(number.get<double>());
  }
  return numbers;
}

// Keys that another body of the same class has, Wan2.2's among them.
absl::Status CheckAbsent(const std::string& key, const Json& value) {
  if (value == false || (key == "attn_scales" && value == Json::array())) return absl::OkStatus();
  return BadWan(
      absl::StrCat(key, " is not supported, only the autoencoder of Wan2.1 is: ", JsonText(value)));
}

absl::Status ReadWanKey(const std::string& key, const Json& value, WanParams& params) {
  for (const WanSize& size : kWanSizes) {
    if (key != size.key) continue;
    if (!IsWanSize(value, size.most)) {
      return BadWan(absl::StrCat(key, " is not a size of 1 to ", size.most, ": ", JsonText(value)));
    }
    params.*size.member = value.get<int64_t>();
    return absl::OkStatus();
  }
  if (key == "input_channels") {  // Qwen-Image's: of both halves.
    OXBOW_RETURN_IF_ERROR(ReadWanKey("in_channels", value, params));
    return ReadWanKey("out_channels", value, params);
  }
  if (key == "dim_mult") return ReadMultiples(value, params);
  if (key == "temperal_downsample") return ReadHalvings(value, params);
  if (key == "latents_mean" || key == "latents_std") {
    auto& numbers = key == "latents_mean" ? params.latents_mean : params.latents_std;
    OXBOW_ASSIGN_OR_RETURN(numbers, PerChannel(key, value));
    return absl::OkStatus();
  }
  if (key == "is_residual" || key == "patch_size" || key == "attn_scales") {
    return CheckAbsent(key, value);
  }
  if (key == "dropout") return absl::OkStatus();  // In training of the autoencoder alone.
  if (key == "scale_factor_temporal" || key == "scale_factor_spatial") return absl::OkStatus();
  return BadWan("unknown key, and its meaning may matter: " + key);
}

// Pipelines take sizes from these keys; they must say what the levels do.
absl::Status CheckFactor(const Json& json, const char* key, int64_t factor) {
  const auto found = json.find(key);
  if (found == json.end() || found->is_null() || *found == factor) return absl::OkStatus();
  return BadWan(absl::StrCat(key, " is ", found->dump(), ", the levels make ", factor));
}

absl::Status CheckWanLatents(WanParams& params) {
  const auto channels = static_cast<size_t>(params.z_dim);
  if (params.latents_mean.empty()) params.latents_mean = kWanMean;
  if (params.latents_std.empty()) params.latents_std = kWanStd;
  if (params.latents_mean.size() != channels || params.latents_std.size() != channels) {
    return BadWan(absl::StrCat(
        "latents_mean and latents_std must have z_dim numbers each: ", params.latents_mean.size(),
        ", ", params.latents_std.size(), " != ", channels));
  }
  for (const double std : params.latents_std) {
    if (!(std > 0)) return BadWan(absl::StrCat("latents_std is not positive: ", std));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<AutoencoderKlWanParams> ParseAutoencoderKlWanConfig(const std::string& config_json) {
  const Json json = ParseJson(config_json);
  if (!json.is_object()) return BadWan("not a JSON object");
  WanParams params;
  for (const auto& [key, value] : json.items()) {
    if (key.starts_with("_") || value.is_null()) continue;
    OXBOW_RETURN_IF_ERROR(ReadWanKey(key, value, params));
  }
  if (params.temperal_downsample.size() + 1 != params.dim_mult.size()) {
    return BadWan(absl::StrCat("temperal_downsample must be one shorter than dim_mult: ",
                               params.temperal_downsample.size(), ", ", params.dim_mult.size()));
  }
  for (size_t i = 1; i < params.dim_mult.size(); ++i) {
    if (params.decoder_width() * params.dim_mult[i] >= 2) continue;
    return BadWan("decoder_base_dim: a level of one channel cannot be halved");
  }
  OXBOW_RETURN_IF_ERROR(CheckFactor(json, "scale_factor_spatial", params.space_factor()));
  OXBOW_RETURN_IF_ERROR(CheckFactor(json, "scale_factor_temporal", params.time_factor()));
  OXBOW_RETURN_IF_ERROR(CheckWanLatents(params));
  return params;
}

}  // namespace oxbow::model
