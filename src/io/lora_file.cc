// SPDX-License-Identifier: Apache-2.0
#include "io/lora_file.h"

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "io/comfy_names.h"

namespace oxbow::io {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kDown = ".lora_A.weight";
constexpr std::string_view kUp = ".lora_B.weight";

constexpr std::string_view kPeftPrefix = "base_model.model.";
constexpr std::string_view kDiffusersPrefix = "transformer.";

// An integer where it is one, as peft writes it.
nlohmann::ordered_json Number(double value) {
  if (std::floor(value) == value && std::abs(value) < 1e15) return static_cast<int64_t>(value);
  return value;
}

nlohmann::ordered_json AdapterConfig(const LoraExport& lora) {
  return {{"peft_type", "LORA"},
          {"r", lora.rank},
          {"lora_alpha", Number(lora.alpha)},
          {"lora_dropout", 0.0},
          {"bias", "none"},
          {"init_lora_weights", "gaussian"},
          {"target_modules", lora.targets},
          {"base_model_name_or_path", lora.base_model},
          {"inference_mode", true},
          {"fan_in_fan_out", false},
          {"task_type", nullptr},
          {"use_rslora", false},
          {"use_dora", false},
          {"modules_to_save", nullptr}};
}

}  // namespace

absl::Status CheckLora(const LoraExport& lora) {
  const auto bad = [](const std::string& what, const std::string& name) {
    return absl::DataLossError(absl::StrCat("adapter: ", what, ": ", name));
  };
  if (lora.rank < 1 || lora.tensors.empty()) {
    return bad("nothing to export",
               absl::StrCat(lora.tensors.size(), " tensors of rank ", lora.rank));
  }
  for (const auto& [name, tensor] : lora.tensors) {
    const bool up = name.ends_with(kUp);
    if (tensor.dtype != DType::kF32 || !(up || name.ends_with(kDown))) {
      return bad("not a float32 LoRA matrix", name);
    }
    OXBOW_RETURN_IF_ERROR(Annotate(Validate(tensor), name));
    if (tensor.shape.size() != 2 || tensor.shape[up ? 1 : 0] != lora.rank) {
      return bad(absl::StrCat("not of rank ", lora.rank), name);
    }
    const std::string module = name.substr(0, name.size() - kUp.size());
    const std::string other = absl::StrCat(module, std::string(up ? kDown : kUp));
    if (!lora.tensors.contains(other)) return bad("matrix without its pair", name);
  }
  return absl::OkStatus();
}

TensorBytes Scaled(TensorBytes tensor, double scale) {
  if (scale == 1) return tensor;
  for (size_t i = 0; i < tensor.data.size(); i += sizeof(float)) {
    float value;
    std::memcpy(&value, tensor.data.data() + i, sizeof value);
    value = static_cast<float>(value * scale);
    std::memcpy(tensor.data.data() + i, &value, sizeof value);
  }
  return tensor;
}

std::map<std::string, TensorBytes> FoldedTensors(const LoraExport& lora) {
  const double scale = lora.alpha / static_cast<double>(lora.rank);
  std::map<std::string, TensorBytes> tensors = lora.tensors;
  for (auto& [name, tensor] : tensors) {
    if (name.ends_with(kUp)) tensor = Scaled(std::move(tensor), scale);
  }
  return tensors;
}

absl::Status WriteDiffusersLora(const fs::path& directory, const LoraExport& lora) {
  OXBOW_RETURN_IF_ERROR(CheckLora(lora));
  Safetensors file{.metadata = lora.provenance};
  std::map<std::string, TensorBytes> folded = FoldedTensors(lora);
  for (auto& [name, tensor] : folded) {
    file.tensors[std::string(kDiffusersPrefix) + name] = std::move(tensor);
  }
  file.metadata["lora_adapter_metadata"] = nlohmann::ordered_json{
      {"transformer.r", lora.rank},
      {"transformer.lora_alpha", lora.rank},
      {"transformer.target_modules",
       lora.targets}}.dump();
  OXBOW_RETURN_IF_ERROR(MakeDirectories(directory));
  return WriteSafetensors(directory / kDiffusersFile, file);
}

absl::Status WriteComfyLora(const fs::path& directory, const std::string& name,
                            const std::string& transformer_class,
                            const std::map<std::string, TensorHeader>& base,
                            const LoraExport& lora) {
  OXBOW_RETURN_IF_ERROR(CheckLora(lora));
  Safetensors file{.metadata = lora.provenance};
  OXBOW_ASSIGN_OR_RETURN(file.tensors, ComfyTensors(transformer_class, base, lora));
  OXBOW_RETURN_IF_ERROR(MakeDirectories(directory));
  return WriteSafetensors(directory / (name + ".safetensors"), file);
}

absl::Status WritePeftLora(const fs::path& directory, const LoraExport& lora) {
  OXBOW_RETURN_IF_ERROR(CheckLora(lora));
  Safetensors file{.metadata = lora.provenance};
  for (const auto& [name, tensor] : lora.tensors)
    file.tensors[std::string(kPeftPrefix) + name] = tensor;
  OXBOW_RETURN_IF_ERROR(MakeDirectories(directory));
  OXBOW_RETURN_IF_ERROR(WriteSafetensors(directory / kPeftFile, file));
  return WriteFileAtomically(directory / kPeftConfig, AdapterConfig(lora).dump(2) + "\n");
}

absl::Status WriteTransformer(const fs::path& directory, const std::string& config_json,
                              const std::map<std::string, TensorBytes>& tensors,
                              const std::map<std::string, std::string>& provenance) {
  const fs::path folder = directory / "transformer";
  OXBOW_RETURN_IF_ERROR(MakeDirectories(folder));
  OXBOW_RETURN_IF_ERROR(WriteSafetensors(folder / "diffusion_pytorch_model.safetensors",
                                         {.tensors = tensors, .metadata = provenance}));
  return WriteFileAtomically(folder / "config.json", config_json);
}

}  // namespace oxbow::io
