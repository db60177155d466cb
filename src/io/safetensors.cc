#include "io/safetensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "io/mapped_file.h"

namespace oxbow::io {
namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr char kMetadata[] = "__metadata__";

absl::StatusOr<Safetensors> Parse(std::string_view bytes) {
  OXBOW_ASSIGN_OR_RETURN(SafetensorsHeader header, ParseSafetensorsHeader(bytes));
  Safetensors result{.metadata = std::move(header.metadata)};
  for (auto& [name, entry] : header.entries) {
    result.tensors[name] =
        TensorBytes{.dtype = entry.tensor.dtype,
                    .shape = std::move(entry.tensor.shape),
                    .data = std::string(bytes.substr(entry.begin, entry.end - entry.begin))};
  }
  return result;
}

}  // namespace

absl::StatusOr<Safetensors> ParseSafetensors(std::string_view bytes, const std::string& name) {
  auto result = Parse(bytes);
  if (!result.ok()) return Annotate(result.status(), name);
  return result;
}

absl::StatusOr<Safetensors> ReadSafetensors(const std::filesystem::path& path) {
  OXBOW_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path.string()));
  return ParseSafetensors(file.bytes(), path.string());
}

absl::StatusOr<std::map<std::string, TensorHeader>> ReadSafetensorsHeader(
    const std::filesystem::path& path) {
  OXBOW_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path.string()));
  auto header = ParseSafetensorsHeader(file.bytes());
  if (!header.ok()) return Annotate(header.status(), path.string());
  std::map<std::string, TensorHeader> tensors;
  for (auto& [name, entry] : header->entries) tensors.emplace(name, std::move(entry.tensor));
  return tensors;
}

std::string SerializeSafetensors(const Safetensors& content) {
  std::vector<const std::pair<const std::string, TensorBytes>*> order;
  for (const auto& named : content.tensors) {
    const absl::Status valid = Validate(named.second);
    OXBOW_CHECK(valid.ok()) << named.first << ": " << valid.ToString();
    order.push_back(&named);
  }
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return WidthOf(a->second.dtype) > WidthOf(b->second.dtype);
  });
  nlohmann::ordered_json header;
  header[kMetadata] = content.metadata;
  if (!content.metadata.contains("format")) header[kMetadata]["format"] = "pt";
  uint64_t position = 0;
  for (const auto* named : order) {
    const TensorBytes& tensor = named->second;
    header[named->first] = {{"dtype", NameOf(tensor.dtype)},
                            {"shape", tensor.shape},
                            {"data_offsets", {position, position + tensor.data.size()}}};
    position += tensor.data.size();
  }
  std::string text = header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.append((kLengthBytes - text.size() % kLengthBytes) % kLengthBytes, ' ');
  std::string bytes;
  bytes.reserve(kLengthBytes + text.size() + position);
  for (uint64_t i = 0; i < kLengthBytes; ++i) {
    bytes.push_back(static_cast<char>(text.size() >> (8 * i) & 0xff));
  }
  bytes += text;
  for (const auto* named : order) bytes += named->second.data;
  return bytes;
}

absl::Status WriteSafetensors(const std::filesystem::path& path, const Safetensors& content) {
  return WriteFileAtomically(path, SerializeSafetensors(content));
}

}  // namespace oxbow::io
