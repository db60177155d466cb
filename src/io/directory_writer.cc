// SPDX-License-Identifier: Apache-2.0
#include "io/directory_writer.h"

#include <nlohmann/json.hpp>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "io/diffusers_directory.h"
#include "io/safetensors.h"

namespace oxbow::io {
namespace {

namespace fs = std::filesystem;

constexpr char kPlainScheduler[] = R"({
  "_class_name": "FlowMatchEulerDiscreteScheduler",
  "_diffusers_version": "0.31.0",
  "num_train_timesteps": 1000,
  "shift": 1.0
}
)";

const Pipeline& PipelineNamed(const std::string& class_name) {
  if (class_name.empty()) return PipelineTable().front();
  for (const Pipeline& pipeline : PipelineTable()) {
    if (pipeline.class_name == class_name) return pipeline;
  }
  OXBOW_CHECK(false) << "no pipeline " << class_name;
  return PipelineTable().front();
}

absl::Status WriteComponent(const fs::path& directory, const PipelineComponent& row,
                            const ComponentContent& content,
                            const std::map<std::string, std::string>& metadata) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) {
    return absl::InternalError(
        absl::StrCat("cannot create directory: ", error.message(), ": ", directory.string()));
  }
  for (const auto& [name, text] : content.files) {
    OXBOW_RETURN_IF_ERROR(WriteFileAtomically(directory / name, text));
  }
  if (row.weights_base.empty()) return absl::OkStatus();
  return WriteSafetensors(directory / (row.weights_base + ".safetensors"),
                          {.tensors = content.weights, .metadata = metadata});
}

}  // namespace

absl::Status WriteDirectory(const fs::path& directory, const DirectoryContent& content) {
  const Pipeline& pipeline = PipelineNamed(content.pipeline);
  nlohmann::ordered_json index = {{"_class_name", pipeline.class_name},
                                  {"_diffusers_version", "0.31.0"}};
  for (const PipelineComponent& row : pipeline.components) {
    if (!row.required) index[row.name] = {nullptr, nullptr};
  }
  for (const std::string& name : pipeline.absent) index[name] = {nullptr, nullptr};
  const ComponentContent scheduler{.files = {{"scheduler_config.json", kPlainScheduler}}};
  for (const PipelineComponent& row : pipeline.components) {
    if (!row.required) continue;
    index[row.name] = {row.library, row.class_name};
    const auto found = content.components.find(row.name);
    OXBOW_CHECK(found != content.components.end() || row.name == "scheduler") << row.name;
    OXBOW_RETURN_IF_ERROR(WriteComponent(
        directory / row.name, row, found == content.components.end() ? scheduler : found->second,
        content.metadata));
  }
  return WriteFileAtomically(directory / "model_index.json", index.dump(2) + "\n");
}

}  // namespace oxbow::io
