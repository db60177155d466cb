// SPDX-License-Identifier: Apache-2.0
// For any config and any file: an adapter is refused, or each of its modules is one of the network,
// with matrices that fit it and finite numbers.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/check.h"
#include "io/adapter_file.h"
#include "tests/fuzz/bytes_input.h"

namespace {

oxbow::io::AdaptedNetwork Network() {
  oxbow::io::AdaptedNetwork network{.transformer_class = "FluxTransformer2DModel", .tensors = {}};
  for (const char* const part : {"attn.to_q", "attn.to_k", "attn.to_v", "proj_mlp"}) {
    network.tensors["single_transformer_blocks.0." + std::string(part) + ".weight"].shape = {2, 2};
  }
  network.tensors["norm_out.linear.weight"].shape = {4, 2};
  return network;
}

void CheckFinite(const oxbow::io::TensorBytes& tensor) {
  OXBOW_CHECK(tensor.dtype == oxbow::io::DType::kF32 && Validate(tensor).ok());
  for (size_t i = 0; i < tensor.data.size(); i += sizeof(float)) {
    float value;
    std::memcpy(&value, tensor.data.data() + i, sizeof value);
    OXBOW_CHECK(std::isfinite(value));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto& network = *new oxbow::io::AdaptedNetwork(Network());
  const auto messages = oxbow::fuzz::Messages(oxbow::fuzz::Text(data, size));
  if (messages.size() != 2) return 0;
  auto file = oxbow::io::ParseSafetensors(messages[1], "fuzz");
  if (!file.ok()) return 0;
  const auto adapter = oxbow::io::ParseAdapter(*std::move(file), std::string(messages[0]), network);
  if (!adapter.ok()) return 0;
  OXBOW_CHECK(!adapter->modules.empty());
  for (const auto& [module, matrices] : adapter->modules) {
    const auto& weight = network.tensors.at(module + ".weight").shape;
    OXBOW_CHECK(matrices.a.shape.size() == 2 && matrices.b.shape.size() == 2) << module;
    OXBOW_CHECK(matrices.a.shape[1] == weight[1] && matrices.b.shape[0] == weight[0]) << module;
    OXBOW_CHECK(matrices.a.shape[0] == matrices.b.shape[1]) << module;
    OXBOW_CHECK(matrices.scale > 0) << module << " " << matrices.scale;
    CheckFinite(matrices.a);
    CheckFinite(matrices.b);
  }
  return 0;
}
