// SPDX-License-Identifier: Apache-2.0
#include "core/model/text_encoder.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "core/model/layers.h"

namespace oxbow::model {
namespace {

constexpr char kIds[] = "ids";
constexpr char kMask[] = "mask";
constexpr char kPooled[] = "pooled";  // An output of one row per text.

absl::Status CheckTextInputs(const exported::Graph& graph) {
  const auto fits = [](const exported::GraphInput& input, const char* name, at::ScalarType type) {
    return input.name == name && input.type == type && input.shape.size() == 2 &&
           input.shape[1].symbol == "S";
  };
  const auto& inputs = graph.inputs;
  if (!inputs.empty() && inputs.size() <= 2 && fits(inputs[0], kIds, at::kLong) &&
      (inputs.size() == 1 || fits(inputs[1], kMask, at::kFloat))) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      graph.class_name, ": inputs: not ids [B, S] int64, and perhaps mask [B, S] float32"));
}

at::ScalarType StorageType(const exported::GraphParameter& parameter, at::ScalarType compute) {
  return parameter.float32 || parameter.shape.size() < 2 ? at::kFloat : compute;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TextEncoder>> TextEncoder::Make(
    exported::Graph graph, NamedTensors weights, const exported::NetworkOptions& options) {
  OXBOW_RETURN_IF_ERROR(CheckTextInputs(graph));
  const bool masked = graph.inputs.size() == 2;
  const bool pooled = std::any_of(graph.outputs.begin(), graph.outputs.end(),
                                  [](const auto& output) { return output.name == kPooled; });
  for (exported::GraphParameter& parameter : graph.parameters) {
    parameter.float32 = parameter.float32 && options.compute == at::kHalf;
    const auto weight = weights.find(parameter.name);
    if (weight == weights.end() || !weight->second.is_floating_point()) continue;
    weight->second = weight->second.to(StorageType(parameter, options.compute));
  }
  OXBOW_ASSIGN_OR_RETURN(
      auto network, exported::ExportedNetwork::Make(std::move(graph), std::move(weights), options));
  return std::unique_ptr<TextEncoder>(new TextEncoder(std::move(network), options.compute, masked,
                                                      options.device.is_cpu() && pooled));
}

absl::StatusOr<NamedTensors> TextEncoder::Encode(const TokenIds& texts) const {
  const at::Tensor& ids = texts.ids;
  OXBOW_CHECK(ids.dim() == 2 && (!texts.mask.defined() || texts.mask.sizes() == ids.sizes()))
      << "ids " << ids.sizes();
  OXBOW_CHECK(masked_ || !texts.mask.defined()) << "a mask for an encoder that takes none";
  // A row of few tokens alone must go the way it goes with others.
  const bool pad = pads_rows_ || ids.size(1) < kRowsMin;
  const auto padded = [&](const at::Tensor& rows) { return pad ? PadRows(rows) : rows; };
  NamedTensors inputs = {{kIds, padded(ids)}};
  if (masked_) {
    const at::Tensor mask = texts.mask.defined() ? texts.mask : at::ones_like(ids);
    inputs[kMask] = padded(mask.to(at::kFloat));
  }
  OXBOW_ASSIGN_OR_RETURN(NamedTensors outputs, network_->Run(inputs));
  for (auto& [name, output] : outputs) {
    output = output.narrow(0, 0, ids.size(0)).to(compute_).to(at::kFloat);
  }
  return outputs;
}

}  // namespace oxbow::model
