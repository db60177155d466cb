#include "io/lora_file.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "io/safetensors.h"

namespace oxbow::io {
namespace {

absl::Status MakeDirectory(const std::filesystem::path& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (!error) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("cannot create directory: ", error.message(), ": ", directory.string()));
}

TensorBytes Scaled(TensorBytes tensor, double scale) {
  for (size_t i = 0; i < tensor.data.size(); i += sizeof(float)) {
    float value;
    std::memcpy(&value, tensor.data.data() + i, sizeof value);
    value = static_cast<float>(value * scale);
    std::memcpy(tensor.data.data() + i, &value, sizeof value);
  }
  return tensor;
}

}  // namespace

absl::Status WriteDiffusersLora(const std::filesystem::path& directory, const LoraExport& lora) {
  if (lora.rank < 1 || lora.tensors.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("nothing to export: ", lora.tensors.size(), " tensors of rank ", lora.rank));
  }
  Safetensors file{.metadata = lora.provenance};
  for (const auto& [name, tensor] : lora.tensors) {
    const bool up = name.ends_with(".lora_B.weight");
    if (tensor.dtype != DType::kF32 || !(up || name.ends_with(".lora_A.weight"))) {
      return absl::InvalidArgumentError("not a float32 LoRA matrix: " + name);
    }
    OXBOW_RETURN_IF_ERROR(Annotate(Validate(tensor), name));
    file.tensors["transformer." + name] =
        up ? Scaled(tensor, lora.alpha / static_cast<double>(lora.rank)) : tensor;
  }
  file.metadata["lora_adapter_metadata"] = nlohmann::ordered_json{
      {"transformer.r", lora.rank},
      {"transformer.lora_alpha", lora.rank},
      {"transformer.target_modules",
       lora.targets}}.dump();
  OXBOW_RETURN_IF_ERROR(MakeDirectory(directory));
  return WriteSafetensors(directory / "pytorch_lora_weights.safetensors", file);
}

absl::Status WriteTransformer(const std::filesystem::path& directory,
                              const std::string& config_json,
                              const std::map<std::string, TensorBytes>& tensors,
                              const std::map<std::string, std::string>& provenance) {
  const std::filesystem::path folder = directory / "transformer";
  OXBOW_RETURN_IF_ERROR(MakeDirectory(folder));
  OXBOW_RETURN_IF_ERROR(WriteFileAtomically(folder / "config.json", config_json));
  return WriteSafetensors(folder / "diffusion_pytorch_model.safetensors",
                          {.tensors = tensors, .metadata = provenance});
}

}  // namespace oxbow::io
