#include "io/diffusers_directory.h"

#include <array>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "core/flow/schedule.h"
#include "io/safetensors.h"

namespace oxbow::io {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr uint64_t kJsonBytesMax = 64 << 20;
constexpr char kPipeline[] = "StableDiffusion3Pipeline";

struct Supported {
  const char* component;
  const char* library;
  const char* class_name;
  const char* config_file;  // Empty: the component reads its files itself.
};

constexpr std::array<Supported, 4> kSupported = {{
    {"transformer", "diffusers", "SD3Transformer2DModel", "config.json"},
    {"text_encoder", "transformers", "CLIPTextModelWithProjection", "config.json"},
    {"tokenizer", "transformers", "CLIPTokenizer", ""},
    {"scheduler", "diffusers", "FlowMatchEulerDiscreteScheduler", "scheduler_config.json"},
}};

// Components of the pipeline that a directory may declare as [null, null].
constexpr std::array<const char*, 7> kAbsent = {
    "vae",         "text_encoder_2", "text_encoder_3",   "tokenizer_2",
    "tokenizer_3", "image_encoder",  "feature_extractor"};

absl::StatusOr<std::string> ReadJsonText(const fs::path& path) {
  OXBOW_ASSIGN_OR_RETURN(std::string text, ReadFile(path, kJsonBytesMax));
  if (!Json::parse(text, nullptr, /*allow_exceptions=*/false).is_object()) {
    return absl::DataLossError(absl::StrCat("not a JSON object: ", path.string()));
  }
  return text;
}

absl::StatusOr<Json> ReadJson(const fs::path& path) {
  OXBOW_ASSIGN_OR_RETURN(const std::string text, ReadJsonText(path));
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

std::string SupportedClasses() {
  return absl::StrJoin(kSupported, ", ", [](std::string* out, const Supported& row) {
    absl::StrAppend(out, row.component, " ", row.class_name);
  });
}

// The class name of an entry ["library", "Class"], or empty for [null, null].
absl::StatusOr<std::string> ClassOf(const std::string& name, const Json& entry) {
  if (!entry.is_array() || entry.size() != 2) {
    return absl::DataLossError("model_index.json: not [library, class]: " + name);
  }
  if (entry[1].is_null()) return std::string();
  if (!entry[1].is_string()) return absl::DataLossError("model_index.json: no class name: " + name);
  std::string class_name = entry[1].get<std::string>();
  if (class_name == "CLIPTokenizerFast") class_name = "CLIPTokenizer";  // The same ids.
  for (const Supported& row : kSupported) {
    if (name == row.component && class_name == row.class_name) return class_name;
  }
  return absl::InvalidArgumentError(absl::StrCat("unsupported model component (supported: ",
                                                 SupportedClasses(), "): ", name, " ", class_name));
}

absl::StatusOr<DiffusersComponents> Open(const fs::path& directory) {
  OXBOW_ASSIGN_OR_RETURN(const Json index, ReadJson(directory / "model_index.json"));
  if (index.contains("_class_name") && index["_class_name"] != kPipeline) {
    return absl::InvalidArgumentError(absl::StrCat(
        "unsupported pipeline (", kPipeline, " is supported): ", index["_class_name"].dump()));
  }
  if (index.contains("vae") && index["vae"].is_array() && index["vae"].size() == 2 &&
      !index["vae"][1].is_null()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "models with an autoencoder are not supported yet: vae ", index["vae"][1].dump()));
  }
  DiffusersComponents components;
  for (const auto& [name, entry] : index.items()) {
    if (name.starts_with("_") || !entry.is_array()) continue;
    OXBOW_ASSIGN_OR_RETURN(const std::string class_name, ClassOf(name, entry));
    if (!class_name.empty()) {
      components[name] = {.class_name = class_name, .directory = directory / name};
    }
  }
  for (const Supported& row : kSupported) {
    const auto found = components.find(row.component);
    if (found == components.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("model_index.json lacks a component: ", row.component));
    }
    if (*row.config_file == '\0') continue;
    OXBOW_ASSIGN_OR_RETURN(found->second.config_json,
                           ReadJsonText(found->second.directory / row.config_file));
  }
  return components;
}

// File name of each tensor's shard.
absl::StatusOr<std::map<std::string, std::string>> ReadWeightMap(const fs::path& path) {
  OXBOW_ASSIGN_OR_RETURN(const Json index, ReadJson(path));
  if (!index.contains("weight_map") || !index["weight_map"].is_object()) {
    return absl::DataLossError("no weight_map: " + path.string());
  }
  std::map<std::string, std::string> shards;
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    // A plain file name: a shard must not lead out of the directory.
    if (!file.is_string() || file.get<std::string>().find('/') != std::string::npos) {
      return absl::DataLossError(
          absl::StrCat("weight_map: no file name for ", tensor, ": ", path.string()));
    }
    shards[tensor] = file.get<std::string>();
  }
  return shards;
}

// Reads one file's tensors, or their headers.
template <typename Tensor>
using FileReader =
    std::function<absl::StatusOr<std::map<std::string, Tensor>>(const fs::path& file)>;

template <typename Tensor>
absl::StatusOr<std::map<std::string, Tensor>> ReadSharded(const fs::path& index,
                                                          const FileReader<Tensor>& read) {
  OXBOW_ASSIGN_OR_RETURN(const auto shards, ReadWeightMap(index));
  std::set<std::string> files;
  for (const auto& [tensor, file] : shards) files.insert(file);
  std::map<std::string, Tensor> tensors;
  for (const std::string& file : files) {
    OXBOW_ASSIGN_OR_RETURN(auto shard, read(index.parent_path() / file));
    tensors.merge(shard);
  }
  for (const auto& [tensor, file] : shards) {
    if (!tensors.contains(tensor)) {
      return absl::DataLossError(absl::StrCat("tensor '", tensor, "' of ",
                                              index.filename().string(), " is not in ", file));
    }
  }
  return tensors;
}

template <typename Tensor>
absl::StatusOr<std::map<std::string, Tensor>> ReadComponent(const DiffusersComponent& component,
                                                            const FileReader<Tensor>& read) {
  const bool transformer = component.directory.filename() == "transformer";
  const std::string base = transformer ? "diffusion_pytorch_model" : "model";
  const auto exists = [&](const std::string& name) {
    return fs::exists(component.directory / name);
  };
  for (const std::string variant : {"", ".fp16"}) {
    const std::string index = absl::StrCat(base, ".safetensors.index", variant, ".json");
    if (exists(index)) return ReadSharded(component.directory / index, read);
    const std::string single = absl::StrCat(base, variant, ".safetensors");
    if (exists(single)) return read(component.directory / single);
  }
  return absl::NotFoundError(absl::StrCat("no weights (", base,
                                          ".safetensors, its index, or the fp16 ", "variants) in ",
                                          component.directory.string()));
}

}  // namespace

absl::StatusOr<DiffusersComponents> OpenDiffusersDirectory(const fs::path& directory) {
  auto components = Open(directory);
  if (!components.ok()) return Annotate(components.status(), directory.string());
  return components;
}

absl::StatusOr<std::map<std::string, TensorBytes>> ReadComponentWeights(
    const DiffusersComponent& component) {
  return ReadComponent<TensorBytes>(
      component, [](const fs::path& path) -> absl::StatusOr<std::map<std::string, TensorBytes>> {
        OXBOW_ASSIGN_OR_RETURN(Safetensors file, ReadSafetensors(path));
        return std::move(file.tensors);
      });
}

absl::StatusOr<std::map<std::string, TensorHeader>> ReadComponentHeaders(
    const DiffusersComponent& component) {
  return ReadComponent<TensorHeader>(component, ReadSafetensorsHeader);
}

absl::StatusOr<double> SchedulerShift(const DiffusersComponent& scheduler, int64_t image_tokens) {
  const Json config = Json::parse(scheduler.config_json, nullptr, /*allow_exceptions=*/false);
  if (config.is_object() && config.value("use_dynamic_shifting", false)) {
    if (config.value("time_shift_type", "exponential") != "exponential") {
      return absl::FailedPreconditionError(
          "scheduler_config.json asks for a time shift other than exponential; set sampling.shift");
    }
    return flow::DynamicShift(image_tokens, config.value("base_shift", 0.5),
                              config.value("max_shift", 1.15),
                              config.value("base_image_seq_len", int64_t{256}),
                              config.value("max_image_seq_len", int64_t{4096}));
  }
  const double shift = config.is_object() ? config.value("shift", 1.0) : 1.0;
  if (!(shift > 0)) {
    return absl::DataLossError(absl::StrCat("scheduler shift is not positive: ", shift));
  }
  return shift;
}

absl::Status WriteDiffusersDirectory(const fs::path& directory, const DiffusersContent& content) {
  std::error_code error;
  nlohmann::ordered_json index = {{"_class_name", kPipeline}, {"_diffusers_version", "0.31.0"}};
  for (const char* name : kAbsent) index[name] = {nullptr, nullptr};
  for (const Supported& row : kSupported) {
    index[row.component] = {row.library, row.class_name};
    fs::create_directories(directory / row.component, error);
    if (error) {
      return absl::InternalError(absl::StrCat("cannot create directory: ", error.message(), ": ",
                                              (directory / row.component).string()));
    }
  }
  const nlohmann::ordered_json plain = {{"_class_name", "FlowMatchEulerDiscreteScheduler"},
                                        {"_diffusers_version", "0.31.0"},
                                        {"num_train_timesteps", 1000},
                                        {"shift", 1.0}};
  const std::string scheduler =
      content.scheduler_config_json.empty() ? plain.dump(2) + "\n" : content.scheduler_config_json;
  const std::vector<std::pair<fs::path, std::string>> texts = {
      {"transformer/config.json", content.transformer_config_json},
      {"text_encoder/config.json", content.text_encoder_config_json},
      {"scheduler/scheduler_config.json", scheduler}};
  for (const auto& [name, text] : texts) {
    OXBOW_RETURN_IF_ERROR(WriteFileAtomically(directory / name, text));
  }
  for (const auto& [name, text] : content.tokenizer_files) {
    OXBOW_RETURN_IF_ERROR(WriteFileAtomically(directory / "tokenizer" / name, text));
  }
  OXBOW_RETURN_IF_ERROR(
      WriteSafetensors(directory / "transformer" / "diffusion_pytorch_model.safetensors",
                       {.tensors = content.transformer, .metadata = content.metadata}));
  OXBOW_RETURN_IF_ERROR(
      WriteSafetensors(directory / "text_encoder" / "model.safetensors",
                       {.tensors = content.text_encoder, .metadata = content.metadata}));
  return WriteFileAtomically(directory / "model_index.json", index.dump(2) + "\n");
}

}  // namespace oxbow::io
