// SPDX-License-Identifier: Apache-2.0
#include "io/prompts/prompt_store.h"

#include <ATen/ATen.h>

#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/file.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "core/model/binding.h"
#include "io/model_digest.h"
#include "io/safetensors.h"
#include "io/tensor_torch.h"

namespace oxbow::io {
namespace {

namespace fs = std::filesystem;

constexpr size_t kIdentityDigits = 16;
constexpr char kEncoders[] = "oxbow.text_encoders";
constexpr char kText[] = "oxbow.text_sha256";

absl::Status MakeDirectory(const fs::path& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (!error) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("cannot create directory: ", error.message(), ": ", directory.string()));
}

constexpr char kFormat[] = "oxbow text encoders 2\n";

absl::Status AddEncoder(const std::string& name, const DiffusersComponent& component,
                        std::string& all) {
  all += DigestLine(name + " config", ConfigWithoutNotes(component.config_json));
  OXBOW_ASSIGN_OR_RETURN(const WeightFiles files, OpenComponentWeights(component));
  all += TensorLines(name, files);
  return absl::OkStatus();
}

// Below an IDENTITY.
fs::path FileOf(const fs::path& identity, const std::string& text) {
  const std::string name = Sha256Hex(text);
  return identity / name.substr(0, 2) / (name + ".safetensors");
}

}  // namespace

uint64_t StoredBytes(const model::Shapes& row_shapes, bool half) {
  constexpr uint64_t kHeader = 1024, kBlock = 4096;
  uint64_t bytes = kHeader;
  for (const auto& [name, shape] : row_shapes) {
    uint64_t tensor = half ? 2 : 4;
    for (const int64_t size : shape) tensor *= static_cast<uint64_t>(size);
    bytes += tensor;
  }
  return (bytes + kBlock - 1) / kBlock * kBlock;
}

bool IsStored(const fs::path& directory, const std::string& text) {
  std::error_code error;
  for (const auto& identity : fs::directory_iterator(directory, error)) {
    if (fs::exists(FileOf(identity.path(), text), error)) return true;
  }
  return false;
}

absl::StatusOr<PromptStore> PromptStore::Open(const fs::path& directory,
                                              const std::string& identity,
                                              model::Shapes row_shapes) {
  const fs::path own = directory / identity.substr(0, kIdentityDigits);
  OXBOW_RETURN_IF_ERROR(MakeDirectory(own));
  return PromptStore(own, identity, std::move(row_shapes));
}

fs::path PromptStore::PathOf(const std::string& text) const { return FileOf(directory_, text); }

bool PromptStore::Has(const std::string& text) const {
  std::error_code error;
  return fs::exists(PathOf(text), error);
}

absl::StatusOr<std::optional<model::EncodedText>> PromptStore::Read(const std::string& text) const {
  const fs::path path = PathOf(text);
  auto file = ReadSafetensors(path);
  if (absl::IsNotFound(file.status())) return std::nullopt;
  const auto broken = [&](const std::string& why) {
    return absl::DataLossError(
        absl::StrCat("stored prompt is broken (", why, "); delete it: ", path.string()));
  };
  if (!file.ok()) return broken(std::string(file.status().message()));
  if (file->metadata[kEncoders] != identity_ || file->metadata[kText] != Sha256Hex(text)) {
    return broken("it is of another model or text");
  }
  auto row = AllToTorch(std::move(file->tensors));
  if (!row.ok()) return broken(std::string(row.status().message()));
  if (const absl::Status fit = model::CheckFit(row_shapes_, *row); !fit.ok()) {
    return broken(std::string(fit.message()));
  }
  for (auto& [name, tensor] : *row) tensor = tensor.to(at::kFloat);
  return *std::move(row);
}

absl::Status PromptStore::Write(const std::string& text, const model::EncodedText& row) {
  OXBOW_CHECK(model::CheckFit(row_shapes_, row).ok())
      << std::string(model::CheckFit(row_shapes_, row).message());
  Safetensors file;
  for (const auto& [name, tensor] : row) file.tensors[name] = FromTorch(NarrowedExactly(tensor));
  file.metadata = {{kEncoders, identity_}, {kText, Sha256Hex(text)}};
  const fs::path path = PathOf(text);
  OXBOW_RETURN_IF_ERROR(MakeDirectory(path.parent_path()));
  if (swept_.insert(path.parent_path().filename().string()).second) {
    SweepTemporaries(path.parent_path());
  }
  return WriteSafetensors(path, file);
}

absl::StatusOr<std::string> IdentityOfTextEncoders(const DiffusersComponents& components,
                                                   const std::string& settings) {
  std::string all = kFormat;
  all += DigestLine("settings", settings);
  for (const auto& [name, component] : components) {
    if (name.starts_with("text_encoder")) {
      OXBOW_RETURN_IF_ERROR(AddEncoder(name, component, all));
    } else if (name.starts_with("tokenizer")) {
      OXBOW_ASSIGN_OR_RETURN(const std::string lines, TokenizerLines(name, component));
      all += lines;
    }
  }
  return Sha256Hex(all);
}

}  // namespace oxbow::io
