// SPDX-License-Identifier: Apache-2.0
#include "io/safetensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "io/mapped_file.h"

namespace oxbow::io {
namespace {

using Json = nlohmann::json;
using HeaderEntry = SafetensorsHeader::Entry;

constexpr uint64_t kHeaderBytesMax = 100'000'000;
constexpr uint64_t kLengthBytes = 8;
constexpr char kMetadata[] = "__metadata__";

// Parses the header, or sets `duplicate` / returns a discarded value. JSON keeps the last of equal
// keys silently; two tensors of one name are an attack or a broken writer.
Json ParseHeader(std::string_view text, std::string& duplicate) {
  std::vector<std::set<std::string>> open;
  const auto watch = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end) open.pop_back();
    if (event == Json::parse_event_t::key &&
        !open.back().insert(parsed.get<std::string>()).second) {
      duplicate = parsed.get<std::string>();
    }
    return true;
  };
  return Json::parse(text.begin(), text.end(), watch, /*allow_exceptions=*/false);
}

// A dtype that is not supported is a property of the file, not of a flag.
absl::StatusOr<DType> SupportedDType(const std::string& name) {
  const auto dtype = DTypeNamed(name);
  if (!dtype.ok()) return absl::FailedPreconditionError(dtype.status().message());
  return dtype;
}

// Positions are relative to the data section.
absl::StatusOr<HeaderEntry> ParseEntry(const Json& json, uint64_t data_bytes) {
  const auto corrupt = [](const char* what) { return absl::DataLossError(what); };
  if (!json.is_object() || !json.contains("dtype") || !json.contains("shape") ||
      !json.contains("data_offsets")) {
    return corrupt("header entry lacks dtype, shape or data_offsets");
  }
  const Json& dtype = json["dtype"];
  const Json& shape = json["shape"];
  const Json& offsets = json["data_offsets"];
  if (!dtype.is_string()) return corrupt("dtype is not a string");
  HeaderEntry entry;
  OXBOW_ASSIGN_OR_RETURN(entry.tensor.dtype, SupportedDType(dtype.get<std::string>()));
  if (!shape.is_array()) return corrupt("shape is not a list");
  for (const Json& dimension : shape) {
    if (!dimension.is_number_unsigned() || dimension.get<uint64_t>() > INT64_MAX) {
      return corrupt("shape holds something else than sizes");
    }
    entry.tensor.shape.push_back(static_cast<int64_t>(dimension.get<uint64_t>()));
  }
  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned()) {
    return corrupt("data_offsets is not a pair of positions");
  }
  entry.begin = offsets[0].get<uint64_t>();
  entry.end = offsets[1].get<uint64_t>();
  if (entry.begin > entry.end || entry.end > data_bytes) {
    return absl::DataLossError(absl::StrCat("data_offsets [", entry.begin, ",", entry.end,
                                            "] outside the ", data_bytes, " data bytes present"));
  }
  const auto declared = ByteSize(entry.tensor.dtype, entry.tensor.shape, data_bytes);
  if (!declared.ok() || *declared != entry.end - entry.begin) {
    return absl::DataLossError(absl::StrCat("shape [", absl::StrJoin(entry.tensor.shape, ","), "] ",
                                            NameOf(entry.tensor.dtype), " does not take the ",
                                            entry.end - entry.begin, " bytes of data_offsets"));
  }
  return entry;
}

// The tensors must tile the data section: no hole hides bytes, no overlap shares them.
absl::Status CheckTiling(const std::map<std::string, HeaderEntry>& entries, uint64_t data_bytes) {
  std::vector<std::pair<const std::string*, const HeaderEntry*>> order;
  for (const auto& [name, entry] : entries) order.emplace_back(&name, &entry);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::tie(a.second->begin, a.second->end) < std::tie(b.second->begin, b.second->end);
  });
  uint64_t position = 0;
  for (const auto& [name, placed] : order) {
    const HeaderEntry& entry = *placed;
    if (entry.begin != position) {
      return absl::DataLossError(absl::StrCat("tensor '", *name, "': data begin at ", entry.begin,
                                              ", expected ", position, " (hole or overlap)"));
    }
    position = entry.end;
  }
  if (position != data_bytes) {
    return absl::DataLossError(
        absl::StrCat("file has ", data_bytes, " data bytes, header declares ", position));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::map<std::string, std::string>> ParseMetadata(const Json& json) {
  std::map<std::string, std::string> metadata;
  if (!json.is_object()) return absl::DataLossError("__metadata__ is not an object");
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) {
      return absl::DataLossError(absl::StrCat("__metadata__ value is not a string: ", key));
    }
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

uint64_t SizeOf(const TensorHeader& tensor) {
  const auto size = ByteSize(tensor.dtype, tensor.shape);
  OXBOW_CHECK(size.ok()) << size.status().ToString();
  return *size;
}

// The content to be written: length and header, then the tensors' bytes in this order.
struct Plan {
  std::string head;
  std::vector<std::string> order;
  uint64_t data_bytes = 0;
};

// By descending width and then name, so that each tensor is aligned.
Plan PlanFor(const std::map<std::string, TensorHeader>& tensors,
             const std::map<std::string, std::string>& metadata) {
  Plan plan;
  for (const auto& [name, tensor] : tensors) plan.order.push_back(name);
  std::stable_sort(plan.order.begin(), plan.order.end(),
                   [&](const std::string& a, const std::string& b) {
                     return WidthOf(tensors.at(a).dtype) > WidthOf(tensors.at(b).dtype);
                   });
  nlohmann::ordered_json header;
  header[kMetadata] = metadata;
  if (!metadata.contains("format")) header[kMetadata]["format"] = "pt";
  for (const std::string& name : plan.order) {
    const TensorHeader& tensor = tensors.at(name);
    const uint64_t end = plan.data_bytes + SizeOf(tensor);
    header[name] = {{"dtype", NameOf(tensor.dtype)},
                    {"shape", tensor.shape},
                    {"data_offsets", {plan.data_bytes, end}}};
    plan.data_bytes = end;
  }
  std::string text = header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.append((kLengthBytes - text.size() % kLengthBytes) % kLengthBytes, ' ');
  for (uint64_t i = 0; i < kLengthBytes; ++i) {
    plan.head.push_back(static_cast<char>(text.size() >> (8 * i) & 0xff));
  }
  plan.head += text;
  return plan;
}

}  // namespace

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view file) {
  if (file.size() < kLengthBytes) {
    return absl::DataLossError(absl::StrCat("truncated: ", file.size(), " bytes"));
  }
  uint64_t header_bytes = 0;
  for (size_t i = kLengthBytes; i-- > 0;) {
    header_bytes = header_bytes << 8 | static_cast<unsigned char>(file[i]);
  }
  if (header_bytes > kHeaderBytesMax || header_bytes > file.size() - kLengthBytes) {
    return absl::DataLossError(absl::StrCat("truncated, or not safetensors: header of ",
                                            header_bytes, " bytes in a file of ", file.size()));
  }
  const std::string_view text = file.substr(kLengthBytes, header_bytes);
  const uint64_t data_begin = kLengthBytes + header_bytes;
  std::string duplicate;
  const Json json = ParseHeader(text, duplicate);
  if (json.is_discarded() || !json.is_object() || text.front() != '{') {
    return absl::DataLossError("header is not a JSON object");
  }
  if (!duplicate.empty()) {
    return absl::DataLossError(absl::StrCat("duplicate key in header: ", duplicate));
  }
  SafetensorsHeader header;
  for (const auto& [name, value] : json.items()) {
    if (name == kMetadata) {
      OXBOW_ASSIGN_OR_RETURN(header.metadata, ParseMetadata(value));
      continue;
    }
    auto entry = ParseEntry(value, file.size() - data_begin);
    if (!entry.ok()) return Annotate(entry.status(), "tensor '" + name + "'");
    header.entries.emplace(name, *std::move(entry));
  }
  OXBOW_RETURN_IF_ERROR(CheckTiling(header.entries, file.size() - data_begin));
  for (auto& [name, entry] : header.entries) {
    entry.begin += data_begin;
    entry.end += data_begin;
  }
  return header;
}

absl::StatusOr<Safetensors> ParseSafetensors(std::string_view bytes, const std::string& name) {
  auto header = ParseSafetensorsHeader(bytes);
  if (!header.ok()) return Annotate(header.status(), name);
  Safetensors result{.metadata = std::move(header->metadata)};
  for (auto& [tensor, entry] : header->entries) {
    result.tensors[tensor] = {
        .dtype = entry.tensor.dtype,
        .shape = std::move(entry.tensor.shape),
        .data = std::string(bytes.substr(entry.begin, entry.end - entry.begin))};
  }
  return result;
}

absl::StatusOr<Safetensors> ReadSafetensors(const std::filesystem::path& path) {
  OXBOW_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path.string()));
  return ParseSafetensors(file.bytes(), path.string());
}

std::string SerializeSafetensors(const Safetensors& content) {
  std::map<std::string, TensorHeader> tensors;
  for (const auto& [name, tensor] : content.tensors) {
    const absl::Status valid = Validate(tensor);
    OXBOW_CHECK(valid.ok()) << name << ": " << valid.ToString();
    tensors[name] = {.dtype = tensor.dtype, .shape = tensor.shape};
  }
  const Plan plan = PlanFor(tensors, content.metadata);
  std::string bytes = plan.head;
  bytes.reserve(plan.head.size() + plan.data_bytes);
  for (const std::string& name : plan.order) bytes += content.tensors.at(name).data;
  return bytes;
}

absl::Status WriteSafetensors(const std::filesystem::path& path, const Safetensors& content) {
  return WriteFileAtomically(path, SerializeSafetensors(content));
}

absl::Status StreamSafetensors(
    const std::map<std::string, TensorHeader>& tensors,
    const std::map<std::string, std::string>& metadata,
    const std::function<absl::Status(const std::string& name, const WriteBytes& write)>&
        write_bytes_of,
    const WriteBytes& write) {
  const Plan plan = PlanFor(tensors, metadata);
  OXBOW_RETURN_IF_ERROR(write(plan.head));
  for (const std::string& name : plan.order) {
    uint64_t written = 0;
    OXBOW_RETURN_IF_ERROR(write_bytes_of(name, [&](std::string_view piece) {
      written += piece.size();
      return write(piece);
    }));
    OXBOW_CHECK(written == SizeOf(tensors.at(name))) << name << ": " << written;
  }
  return absl::OkStatus();
}

absl::Status WriteSafetensorsPiecewise(
    const std::filesystem::path& path, const std::map<std::string, TensorHeader>& tensors,
    const std::map<std::string, std::string>& metadata,
    const std::function<absl::StatusOr<std::string>(const std::string& name)>& bytes_of) {
  OXBOW_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  OXBOW_RETURN_IF_ERROR(StreamSafetensors(
      tensors, metadata,
      [&](const std::string& name, const WriteBytes& write) -> absl::Status {
        OXBOW_ASSIGN_OR_RETURN(const std::string bytes, bytes_of(name));
        return write(bytes);
      },
      [&](std::string_view piece) { return file.Append(piece); }));
  return file.Commit();
}

}  // namespace oxbow::io
