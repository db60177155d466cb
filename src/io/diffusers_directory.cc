// SPDX-License-Identifier: Apache-2.0
#include "io/diffusers_directory.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "base/nearest_name.h"
#include "base/status_macros.h"
#include "io/hub_id.h"

namespace oxbow::io {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr uint64_t kJsonBytesMax = 64 << 20;
constexpr int kDepthMax = 64;  // A wrong value is shown, written by recursion.
// Other names of the same, with the same ids.
constexpr std::array<std::pair<const char*, const char*>, 4> kSynonyms = {
    {{"CLIPTokenizerFast", "CLIPTokenizer"},
     {"T5Tokenizer", "T5TokenizerFast"},
     {"Qwen2TokenizerFast", "Qwen2Tokenizer"},
     {"LlamaTokenizerFast", "LlamaTokenizer"}}};

absl::StatusOr<std::string> ReadJsonText(const fs::path& path) {
  OXBOW_ASSIGN_OR_RETURN(std::string text, ReadFile(path, kJsonBytesMax));
  if (IsNestedBeyond(text, kDepthMax)) {
    return absl::DataLossError(
        absl::StrCat("nested more than ", kDepthMax, " deep: ", path.string()));
  }
  if (!ParseJson(text).is_object()) {
    return absl::DataLossError(absl::StrCat("not a JSON object: ", path.string()));
  }
  return text;
}

absl::StatusOr<Json> ReadConfigJson(const fs::path& path) {
  OXBOW_ASSIGN_OR_RETURN(const std::string text, ReadJsonText(path));
  return ParseJson(text);
}

std::string SupportedClasses(const Pipeline& pipeline) {
  return absl::StrJoin(pipeline.components, ", ",
                       [](std::string* out, const PipelineComponent& row) {
                         absl::StrAppend(out, row.name, " ", row.class_name);
                       });
}

// The row of an entry ["library", "Class"], or null for [null, null].
absl::StatusOr<const PipelineComponent*> RowOf(const Pipeline& pipeline, const std::string& name,
                                               const Json& entry) {
  if (!entry.is_array() || entry.size() != 2) {
    return absl::DataLossError("model_index.json: not [library, class]: " + name);
  }
  if (entry[1].is_null()) return nullptr;
  if (!entry[1].is_string()) return absl::DataLossError("model_index.json: no class name: " + name);
  std::string class_name = entry[1].get<std::string>();
  for (const auto& [other, ours] : kSynonyms) {
    if (class_name == other) class_name = ours;
  }
  if (std::find(pipeline.absent.begin(), pipeline.absent.end(), name) != pipeline.absent.end()) {
    return absl::FailedPreconditionError(absl::StrCat("model_index.json: '", name, "' is ",
                                                      class_name, "; a ", pipeline.class_name,
                                                      " is supported without one (null)"));
  }
  for (const PipelineComponent& row : pipeline.components) {
    if (name == row.name && class_name == row.class_name) return &row;
  }
  return absl::FailedPreconditionError(
      absl::StrCat("unsupported model component (supported: ", SupportedClasses(pipeline),
                   "): ", name, " ", class_name));
}

// diffusers writes the class into each config; it must be the one that model_index.json gives.
absl::Status CheckClass(const PipelineComponent& row, const std::string& config_json) {
  const Json config = ParseJson(config_json);
  const auto written = config.find("_class_name");
  if (written == config.end() || *written == row.class_name) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(row.name, "/", row.config_file,
                                                    " is of another class than model_index.json's ",
                                                    row.class_name, ": ", written->dump()));
}

absl::StatusOr<const Pipeline*> PipelineNamedBy(const Json& index) {
  const std::vector<Pipeline>& table = PipelineTable();
  if (!index.contains("_class_name")) return &table.front();
  for (const Pipeline& pipeline : table) {
    if (index["_class_name"] == pipeline.class_name) return &pipeline;
  }
  const std::string known = absl::StrJoin(
      table, ", ", [](std::string* out, const Pipeline& row) { out->append(row.class_name); });
  return absl::FailedPreconditionError(
      absl::StrCat("model_index.json: '_class_name': unsupported pipeline (", known,
                   " is supported): ", index["_class_name"].dump()));
}

// A config's key that another kind of model has.
absl::Status CheckTransformer(const Pipeline& pipeline, const std::string& config_json) {
  const Json config = ParseJson(config_json);
  for (const std::string& key : pipeline.transformer_without) {
    const Json& found = MemberOf(config, key.c_str());
    if (found.is_null()) continue;
    return absl::FailedPreconditionError(absl::StrCat("transformer/config.json: '", key, "' is ",
                                                      found.dump(), "; a ", pipeline.class_name,
                                                      " is supported with null, from text alone"));
  }
  return absl::OkStatus();
}

// The likely meaning of a path that has no model_index.json.
absl::Status ExplainMissingIndex(const fs::path& directory) {
  if (fs::is_regular_file(directory)) {
    return absl::FailedPreconditionError(
        "is a file; single-file checkpoints are not supported, give a diffusers directory");
  }
  if (fs::exists(directory / "config.json") || fs::exists(directory / "scheduler_config.json")) {
    return absl::FailedPreconditionError(
        "is one component of a model; give the directory above, which holds model_index.json");
  }
  if (fs::is_directory(directory)) {
    return absl::NotFoundError("no model_index.json: not a diffusers directory");
  }
  const std::string meant = DidYouMean(directory);
  return absl::NotFoundError(
      absl::StrCat("no such directory", meant.empty() ? HubHint(directory.string()) : meant));
}

absl::Status CheckComplete(const Pipeline& pipeline, const DiffusersComponents& components) {
  for (const PipelineComponent& row : pipeline.components) {
    if (!row.required || components.contains(row.name)) continue;
    return absl::FailedPreconditionError("model_index.json lacks a component: " + row.name);
  }
  for (const char* number : {"_2", "_3"}) {
    const std::string encoder = absl::StrCat("text_encoder", number);
    const std::string tokenizer = absl::StrCat("tokenizer", number);
    if (components.contains(encoder) && !components.contains(tokenizer)) {
      return absl::FailedPreconditionError(
          absl::StrCat("model_index.json has ", encoder, " without its ", tokenizer));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<DiffusersComponents> Open(const fs::path& directory) {
  if (!fs::exists(directory / "model_index.json")) return ExplainMissingIndex(directory);
  OXBOW_ASSIGN_OR_RETURN(const Json index, ReadConfigJson(directory / "model_index.json"));
  OXBOW_ASSIGN_OR_RETURN(const Pipeline* const pipeline, PipelineNamedBy(index));
  DiffusersComponents components;
  for (const auto& [name, entry] : index.items()) {
    if (name.starts_with("_") || !entry.is_array()) continue;
    OXBOW_ASSIGN_OR_RETURN(const PipelineComponent* const row, RowOf(*pipeline, name, entry));
    if (row == nullptr) continue;
    DiffusersComponent component{.class_name = row->class_name,
                                 .directory = directory / name,
                                 .weights_base = row->weights_base};
    if (!row->config_file.empty()) {
      OXBOW_ASSIGN_OR_RETURN(component.config_json,
                             ReadJsonText(component.directory / row->config_file));
      OXBOW_RETURN_IF_ERROR(CheckClass(*row, component.config_json));
    }
    components.emplace(name, std::move(component));
  }
  OXBOW_RETURN_IF_ERROR(CheckComplete(*pipeline, components));
  OXBOW_RETURN_IF_ERROR(CheckTransformer(*pipeline, components.at("transformer").config_json));
  return components;
}

}  // namespace

absl::StatusOr<DiffusersComponents> OpenDiffusersDirectory(const fs::path& directory) {
  auto components = Open(directory);
  if (!components.ok()) return Annotate(components.status(), directory.string());
  return components;
}

double GuidanceScale(const Pipeline& pipeline, double guidance) {
  return std::max(1.0, guidance + pipeline.guidance_offset);
}

absl::StatusOr<const Pipeline*> PipelineOf(const DiffusersComponents& components) {
  const std::string& transformer = components.at("transformer").class_name;
  for (const Pipeline& pipeline : PipelineTable()) {
    for (const PipelineComponent& row : pipeline.components) {
      if (row.name == "transformer" && row.class_name == transformer) return &pipeline;
    }
  }
  return absl::FailedPreconditionError("no supported pipeline has this transformer: " +
                                       transformer);
}

std::optional<DistilledSign> DistilledBy(const fs::path& directory) {
  const auto index = ReadConfigJson(directory / "model_index.json");
  if (!index.ok()) return std::nullopt;
  const auto pipeline = PipelineNamedBy(*index);
  if (!pipeline.ok() || (*pipeline)->distilled.file.empty()) return std::nullopt;
  const DistilledSign& sign = (*pipeline)->distilled;
  const auto json = ReadConfigJson(directory / sign.file);
  if (!json.ok()) return std::nullopt;
  return MemberOf(*json, sign.key.c_str()) == Json::parse(sign.value) ? std::optional(sign)
                                                                      : std::nullopt;
}

absl::StatusOr<WeightFiles> OpenComponentWeights(const DiffusersComponent& component) {
  OXBOW_CHECK(!component.weights_base.empty()) << component.class_name << " has no weights";
  return WeightFiles::Open(component.directory, component.weights_base);
}

absl::StatusOr<std::map<std::string, TensorHeader>> ReadComponentHeaders(
    const DiffusersComponent& component) {
  OXBOW_ASSIGN_OR_RETURN(const WeightFiles files, OpenComponentWeights(component));
  return files.headers();
}

absl::Status DataError(const absl::Status& status, const fs::path& where) {
  if (!absl::IsInvalidArgument(status)) return Annotate(status, where.string());
  return Annotate(absl::FailedPreconditionError(status.message()), where.string());
}

}  // namespace oxbow::io
