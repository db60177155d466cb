// SPDX-License-Identifier: Apache-2.0
#include "services/learner/final_weights.h"

#include <ATen/ATen.h>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "io/lora_file.h"
#include "io/tensor_torch.h"

namespace oxbow::learner {
namespace {

absl::Status WriteOne(const std::filesystem::path& directory, const model::ParameterSet& trained,
                      const model::Policy& policy, const v1::RunConfig& config,
                      const std::string& config_json, PolicyVersion version) {
  const std::map<std::string, std::string> provenance = {
      {"oxbow.run", config.run().name()},
      {"oxbow.policy_version", absl::StrCat(version.value)},
      {"oxbow.base_model", config.model().path()}};
  if (config.model().trained() == v1::TRAINED_PART_LORA) {
    const v1::LoraConfig& lora = config.model().lora();
    const io::LoraExport adapter{.tensors = io::AllFromTorch(trained.tensors()),
                                 .rank = lora.rank(),
                                 .alpha = lora.alpha(),
                                 .targets = {lora.targets().begin(), lora.targets().end()},
                                 .base_model = config.model().path(),
                                 .provenance = provenance};
    OXBOW_RETURN_IF_ERROR(io::WriteDiffusersLora(directory, adapter));
    return io::WritePeftLora(directory / "peft", adapter);
  }
  model::NamedTensors tensors = trained.tensors();
  tensors.insert(policy.frozen().begin(), policy.frozen().end());
  return io::WriteTransformer(directory, config_json, io::AllFromTorch(tensors), provenance);
}

}  // namespace

absl::Status WriteFinalWeights(const std::filesystem::path& directory, model::Policy& policy,
                               const v1::RunConfig& config,
                               const std::string& transformer_config_json, PolicyVersion version) {
  const bool ema = config.ema().enabled();
  std::error_code error;
  std::filesystem::create_directories(directory / "raw", error);
  OXBOW_RETURN_IF_ERROR(WriteOne(directory, ema ? policy.ema_parameters() : policy.parameters(),
                                 policy, config, transformer_config_json, version));
  return WriteOne(directory / "raw", policy.parameters(), policy, config, transformer_config_json,
                  version);
}

}  // namespace oxbow::learner
