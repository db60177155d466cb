// SPDX-License-Identifier: Apache-2.0
#include "run/start_weights.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/json.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "io/diffusers_directory.h"
#include "io/lora_file.h"
#include "io/safetensors.h"

namespace oxbow::run {
namespace {

namespace fs = std::filesystem;

constexpr char kDirectory[] = "start";
constexpr char kWeights[] = "weights.safetensors";
constexpr char kRecord[] = "start.json";
constexpr uint64_t kRecordBytesMax = 1 << 16;
constexpr size_t kDigitsShown = 12;

struct Record {
  std::string from;
  FileDigest digest;
};

// Nothing without a record; kDataLoss for one that cannot be read.
absl::StatusOr<std::optional<Record>> ReadRecord(const fs::path& run_dir) {
  const fs::path path = run_dir / kDirectory / kRecord;
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return std::optional<Record>();
  OXBOW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kRecordBytesMax));
  const auto json = ParseJson(text);
  const auto is = [&](const char* key, auto fits) {
    return json.is_object() && json.contains(key) && fits(json.at(key));
  };
  const auto text_like = [](const nlohmann::json& value) { return value.is_string(); };
  if (!is("from", text_like) || !is("sha256", text_like) ||
      !is("bytes", [](const nlohmann::json& value) { return value.is_number_unsigned(); })) {
    return absl::DataLossError(absl::StrCat("no record of a start: ", path.string()));
  }
  return Record{
      json.at("from").get<std::string>(),
      {.sha256 = json.at("sha256").get<std::string>(), .bytes = json.at("bytes").get<uint64_t>()}};
}

// Whether a module is one of `targets`, as PEFT matches them.
bool IsTarget(const std::string& module, const v1::LoraConfig& lora) {
  for (const std::string& target : lora.targets()) {
    if (module == target || module.ends_with("." + target)) return true;
  }
  return false;
}

}  // namespace

absl::Status WriteStart(const fs::path& run_dir, const StartWeights& start) {
  const fs::path directory = run_dir / kDirectory;
  OXBOW_RETURN_IF_ERROR(MakeDirectories(directory));
  OXBOW_RETURN_IF_ERROR(io::WriteSafetensors(
      directory / kWeights, {.tensors = start.tensors, .metadata = {{"oxbow.from", start.from}}}));
  OXBOW_ASSIGN_OR_RETURN(const FileDigest digest, DigestOfFile(directory / kWeights));
  const nlohmann::ordered_json record = {
      {"from", start.from}, {"sha256", digest.sha256}, {"bytes", digest.bytes}};
  return WriteFileAtomically(directory / kRecord, record.dump() + "\n");
}

absl::StatusOr<std::optional<StartWeights>> ReadStart(const fs::path& run_dir) {
  OXBOW_ASSIGN_OR_RETURN(const std::optional<Record> record, ReadRecord(run_dir));
  if (!record.has_value()) return std::optional<StartWeights>();
  const fs::path file = run_dir / kDirectory / kWeights;
  OXBOW_ASSIGN_OR_RETURN(const FileDigest digest, DigestOfFile(file));
  if (!(digest == record->digest)) {
    return absl::DataLossError(
        absl::StrCat("not the weights that the run began with: ", file.string()));
  }
  OXBOW_ASSIGN_OR_RETURN(io::Safetensors content, io::ReadSafetensors(file));
  return StartWeights{.from = record->from, .tensors = std::move(content.tensors)};
}

std::string StartSource(const fs::path& run_dir) {
  const auto record = ReadRecord(run_dir);
  if (!record.ok() || !record->has_value()) return "";
  return absl::StrCat((*record)->from, ", sha256 ",
                      (*record)->digest.sha256.substr(0, kDigitsShown));
}

absl::StatusOr<std::map<std::string, io::TensorBytes>> AdapterFor(const v1::LoraConfig& lora,
                                                                  io::StoredAdapter&& adapter) {
  const double scale = lora.alpha() / static_cast<double>(lora.rank());
  std::map<std::string, io::TensorBytes> tensors;
  for (auto& [module, matrices] : adapter.modules) {
    const int64_t rank = matrices.a.shape[0];
    if (rank > static_cast<int64_t>(lora.rank())) {
      return absl::InvalidArgumentError(absl::StrCat("the adapter is of rank ", rank, " at ",
                                                     module, "; set model.lora.rank to it, got ",
                                                     lora.rank()));
    }
    if (!IsTarget(module, lora)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the adapter has a module that model.lora.targets does not name: ", module));
    }
    tensors[module + ".lora_A.weight"] = std::move(matrices.a);
    tensors[module + ".lora_B.weight"] = io::Scaled(std::move(matrices.b), matrices.scale / scale);
  }
  return tensors;
}

absl::StatusOr<StartWeights> StartFromAdapter(const v1::ModelConfig& model, const fs::path& path) {
  OXBOW_ASSIGN_OR_RETURN(const io::DiffusersComponents components,
                         io::OpenDiffusersDirectory(model.path()));
  const io::DiffusersComponent& transformer = components.at("transformer");
  io::AdaptedNetwork network{.transformer_class = transformer.class_name, .tensors = {}};
  OXBOW_ASSIGN_OR_RETURN(network.tensors, io::ReadComponentHeaders(transformer));
  OXBOW_ASSIGN_OR_RETURN(io::StoredAdapter adapter, io::ReadAdapter(path, network));
  StartWeights start{.from = adapter.file.string(), .tensors = {}};
  auto tensors = AdapterFor(model.lora(), std::move(adapter));
  if (!tensors.ok()) return Annotate(tensors.status(), start.from);
  start.tensors = *std::move(tensors);
  return start;
}

}  // namespace oxbow::run
