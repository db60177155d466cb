// SPDX-License-Identifier: Apache-2.0
#include "rewards/network_files.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/checksum.h"
#include "base/file.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "core/model/device.h"
#include "io/network_graph.h"
#include "io/tensor_torch.h"

namespace oxbow::rewards {
namespace {

namespace fs = std::filesystem;
using model::exported::ExportedNetwork;
using model::exported::NetworkOptions;

constexpr uint64_t kNetworkConfigBytesMax = 1 << 20;

// A file's JSON; empty where there is none.
absl::StatusOr<std::string> ConfigOf(const fs::path& directory) {
  absl::StatusOr<std::string> config = ReadFile(directory / "config.json", kNetworkConfigBytesMax);
  return absl::IsNotFound(config.status()) ? std::string() : config;
}

absl::StatusOr<at::ScalarType> TypeNamed(const std::string& name) {
  if (name.empty() || name == "f32") return at::kFloat;
  if (name == "bf16") return at::kBFloat16;
  if (name == "f16") return at::kHalf;
  return absl::InvalidArgumentError(absl::StrCat("dtype is f32, bf16 or f16, got ", name));
}

}  // namespace

std::string WeightLines(const io::WeightFiles& files) {
  std::string lines;
  for (const auto& [name, header] : files.headers()) {
    absl::StrAppend(&lines, name, " ", HexOf(Checksum128(files.BytesOf(name))), "\n");
  }
  return lines;
}

absl::StatusOr<NetworkOptions> OptionsNamed(const std::string& device, const std::string& dtype) {
  NetworkOptions options;
  OXBOW_ASSIGN_OR_RETURN(options.compute, TypeNamed(dtype));
  OXBOW_ASSIGN_OR_RETURN(options.device, model::DeviceNamed(device.empty() ? "cpu" : device));
  return options;
}

absl::StatusOr<OpenedNetwork> OpenNetwork(const fs::path& directory, const std::string& class_name,
                                          const NetworkOptions& options) {
  OXBOW_ASSIGN_OR_RETURN(const io::WeightFiles files, io::WeightFiles::Open(directory, "model"));
  OXBOW_ASSIGN_OR_RETURN(const std::string config, ConfigOf(directory));
  OXBOW_ASSIGN_OR_RETURN(io::NetworkGraph found, io::FindNetworkGraph({.class_name = class_name,
                                                                       .directory = directory,
                                                                       .config_json = config,
                                                                       .weights_base = {}}));
  OXBOW_ASSIGN_OR_RETURN(model::NamedTensors weights, io::LoadTensors(files));
  auto network = ExportedNetwork::Make(std::move(found.graph), std::move(weights), options);
  if (!network.ok()) return io::DataError(network.status(), directory.string());
  const std::string all = absl::StrCat(Sha256Hex(found.json), "\n", c10::toString(options.compute),
                                       "\n", WeightLines(files));
  return OpenedNetwork{.network = *std::move(network), .identity = Sha256Hex(all).substr(0, 16)};
}

}  // namespace oxbow::rewards
