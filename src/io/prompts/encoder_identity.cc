#include "io/prompts/encoder_identity.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/file.h"
#include "base/sha256.h"
#include "base/status_macros.h"

namespace oxbow::io {
namespace {

constexpr char kFormat[] = "oxbow text encoders 1\n";
constexpr size_t kWholeMax = 64 << 10;
constexpr size_t kPiece = 4 << 10;
constexpr size_t kPieces = 4;
constexpr uint64_t kFileBytesMax = 256 << 20;
constexpr const char* kTokenizerFiles[] = {"vocab.json", "merges.txt", "spiece.model",
                                           "special_tokens_map.json", "tokenizer_config.json"};

// Each part with its length in front, so that no two lists of parts look alike.
void Add(std::string& all, const std::string& name, std::string_view content) {
  absl::StrAppend(&all, name, " ", content.size(), " ", Sha256Hex(content), "\n");
}

std::string SampleOf(std::string_view bytes) {
  if (bytes.size() <= kWholeMax) return std::string(bytes);
  std::string sample;
  for (size_t i = 0; i < kPieces; ++i) {
    sample += bytes.substr(i * (bytes.size() - kPiece) / (kPieces - 1), kPiece);
  }
  return sample;
}

// Without the notes of the program that saved it.
std::string ConfigWithoutNotes(const std::string& config_json) {
  auto config = nlohmann::json::parse(config_json, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return config_json;
  for (const char* note : {"_name_or_path", "transformers_version", "torch_dtype", "dtype"}) {
    config.erase(note);
  }
  return config.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

absl::Status AddEncoder(const std::string& name, const DiffusersComponent& component,
                        std::string& all) {
  Add(all, name + " config", ConfigWithoutNotes(component.config_json));
  OXBOW_ASSIGN_OR_RETURN(const WeightFiles files, OpenComponentWeights(component));
  for (const auto& [tensor, header] : files.headers()) {
    Add(all,
        absl::StrCat(name, " ", tensor, " ", NameOf(header.dtype), " [",
                     absl::StrJoin(header.shape, ","), "]"),
        SampleOf(files.BytesOf(tensor)));
  }
  return absl::OkStatus();
}

absl::Status AddTokenizer(const std::string& name, const DiffusersComponent& component,
                          std::string& all) {
  for (const char* file : kTokenizerFiles) {
    const auto content = ReadFile(component.directory / file, kFileBytesMax);
    if (absl::IsNotFound(content.status())) continue;
    if (!content.ok()) return content.status();
    Add(all, absl::StrCat(name, " ", file), *content);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> IdentityOfTextEncoders(const DiffusersComponents& components,
                                                   const std::string& settings) {
  std::string all = kFormat;
  Add(all, "settings", settings);
  for (const auto& [name, component] : components) {
    if (name.starts_with("text_encoder")) {
      OXBOW_RETURN_IF_ERROR(AddEncoder(name, component, all));
    } else if (name.starts_with("tokenizer")) {
      OXBOW_RETURN_IF_ERROR(AddTokenizer(name, component, all));
    }
  }
  return Sha256Hex(all);
}

}  // namespace oxbow::io
