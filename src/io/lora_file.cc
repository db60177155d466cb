// SPDX-License-Identifier: Apache-2.0
#include "io/lora_file.h"

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "io/comfy_names.h"
#include "io/safetensors.h"

namespace oxbow::io {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kDown = ".lora_A.weight";
constexpr std::string_view kUp = ".lora_B.weight";

constexpr char kPeftFile[] = "adapter_model.safetensors";
constexpr char kPeftConfig[] = "adapter_config.json";
constexpr char kDiffusersFile[] = "pytorch_lora_weights.safetensors";
constexpr std::string_view kPeftPrefix = "base_model.model.";
constexpr std::string_view kDiffusersPrefix = "transformer.";
constexpr uint64_t kConfigBytesMax = 1 << 20;

absl::Status MakeDirectory(const fs::path& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
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

// Diffusers' keys with alpha / r in B, or ComfyUI's of a transformer's class.
Safetensors Folded(const LoraExport& lora, std::string_view comfy_class = {}) {
  const double scale = lora.alpha / static_cast<double>(lora.rank);
  Safetensors file{.metadata = lora.provenance};
  for (const auto& [name, tensor] : lora.tensors) {
    const std::string_view matrix(name.end() - kUp.size(), name.end());  // Both are as long.
    const std::string module = name.substr(0, name.size() - kUp.size());
    file.tensors[ComfyName(comfy_class, module) + std::string(matrix)] =
        matrix == kUp ? Scaled(tensor, scale) : tensor;
  }
  return file;
}

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

// Alpha and targets: PEFT's config file has them, else the header for diffusers, else nothing does.
absl::Status ReadDeclared(const fs::path& config, const std::map<std::string, std::string>& header,
                          LoraExport& lora) {
  std::string text;
  std::string prefix;
  if (!config.empty()) {
    OXBOW_ASSIGN_OR_RETURN(text, ReadFile(config, kConfigBytesMax));
  } else if (const auto found = header.find("lora_adapter_metadata"); found != header.end()) {
    text = found->second;
    prefix = "transformer.";
  } else {
    return absl::OkStatus();
  }
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto alpha = json.is_object() ? json.find(prefix + "lora_alpha") : json.end();
  if (!json.is_object() || alpha == json.end() || !alpha->is_number() || *alpha <= 0) {
    return absl::DataLossError("adapter: no lora_alpha in what it declares");
  }
  for (const char* const other : {"use_rslora", "use_dora"}) {
    const auto flag = json.find(prefix + other);
    if (flag != json.end() && flag->is_boolean() && flag->get<bool>()) {
      return absl::DataLossError(absl::StrCat("adapter: is of another kind: ", other));
    }
  }
  lora.alpha = alpha->get<double>();
  return absl::OkStatus();
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

absl::Status WriteDiffusersLora(const fs::path& directory, const LoraExport& lora) {
  OXBOW_RETURN_IF_ERROR(CheckLora(lora));
  Safetensors file = Folded(lora);
  file.metadata["lora_adapter_metadata"] = nlohmann::ordered_json{
      {"transformer.r", lora.rank},
      {"transformer.lora_alpha", lora.rank},
      {"transformer.target_modules",
       lora.targets}}.dump();
  OXBOW_RETURN_IF_ERROR(MakeDirectory(directory));
  return WriteSafetensors(directory / kDiffusersFile, file);
}

absl::Status WriteComfyLora(const fs::path& directory, const std::string& name,
                            const std::string& transformer_class, const LoraExport& lora) {
  OXBOW_RETURN_IF_ERROR(CheckLora(lora));
  OXBOW_RETURN_IF_ERROR(MakeDirectory(directory));
  return WriteSafetensors(directory / (name + ".safetensors"), Folded(lora, transformer_class));
}

absl::Status WritePeftLora(const fs::path& directory, const LoraExport& lora) {
  OXBOW_RETURN_IF_ERROR(CheckLora(lora));
  Safetensors file{.metadata = lora.provenance};
  for (const auto& [name, tensor] : lora.tensors)
    file.tensors[std::string(kPeftPrefix) + name] = tensor;
  OXBOW_RETURN_IF_ERROR(MakeDirectory(directory));
  OXBOW_RETURN_IF_ERROR(WriteSafetensors(directory / kPeftFile, file));
  return WriteFileAtomically(directory / kPeftConfig, AdapterConfig(lora).dump(2) + "\n");
}

void SetAlpha(double alpha, LoraExport& lora) {
  const double scale = lora.alpha / alpha;
  lora.alpha = alpha;
  if (scale == 1) return;
  for (auto& [name, tensor] : lora.tensors) {
    if (name.ends_with(kUp)) tensor = Scaled(std::move(tensor), scale);
  }
}

absl::StatusOr<LoraExport> ReadLora(const fs::path& path) {
  std::error_code ignored;
  fs::path file = path;
  fs::path config;
  if (fs::is_directory(path, ignored)) {
    const bool peft = fs::exists(path / kPeftFile, ignored);
    file = path / (peft ? kPeftFile : kDiffusersFile);
    if (peft) config = path / kPeftConfig;
  } else if (path.filename() == kPeftFile) {
    config = path.parent_path() / kPeftConfig;
  }
  if (!fs::exists(file, ignored)) {
    return absl::NotFoundError(absl::StrCat("no adapter there (", kPeftFile, " or ", kDiffusersFile,
                                            "): ", path.string()));
  }
  OXBOW_ASSIGN_OR_RETURN(Safetensors content, ReadSafetensors(file));
  LoraExport lora;
  for (auto& [name, tensor] : content.tensors) {
    std::string plain = name;
    for (const std::string_view prefix : {kPeftPrefix, kDiffusersPrefix}) {
      if (plain.starts_with(prefix)) plain = plain.substr(prefix.size());
    }
    if (plain.ends_with(kDown) && !tensor.shape.empty()) lora.rank = tensor.shape[0];
    lora.tensors[plain] = std::move(tensor);
  }
  lora.alpha = static_cast<double>(lora.rank);
  OXBOW_RETURN_IF_ERROR(Annotate(ReadDeclared(config, content.metadata, lora), file.string()));
  OXBOW_RETURN_IF_ERROR(Annotate(CheckLora(lora), file.string()));
  return lora;
}

absl::Status WriteTransformer(const fs::path& directory, const std::string& config_json,
                              const std::map<std::string, TensorBytes>& tensors,
                              const std::map<std::string, std::string>& provenance) {
  const fs::path folder = directory / "transformer";
  OXBOW_RETURN_IF_ERROR(MakeDirectory(folder));
  OXBOW_RETURN_IF_ERROR(WriteSafetensors(folder / "diffusion_pytorch_model.safetensors",
                                         {.tensors = tensors, .metadata = provenance}));
  return WriteFileAtomically(folder / "config.json", config_json);
}

}  // namespace oxbow::io
