#include "io/safetensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/atomic_file.h"
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

uint64_t SizeOf(const TensorHeader& tensor) {
  const auto size = ByteSize(tensor.dtype, tensor.shape);
  OXBOW_CHECK(size.ok()) << size.status().ToString();
  return *size;
}

// What is to be written: length and header, then the tensors' bytes in this order.
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
    const std::function<absl::StatusOr<std::string_view>(const std::string& name)>& bytes_of,
    const std::function<absl::Status(std::string_view piece)>& write) {
  const Plan plan = PlanFor(tensors, metadata);
  OXBOW_RETURN_IF_ERROR(write(plan.head));
  for (const std::string& name : plan.order) {
    OXBOW_ASSIGN_OR_RETURN(const std::string_view bytes, bytes_of(name));
    OXBOW_CHECK(bytes.size() == SizeOf(tensors.at(name))) << name << ": " << bytes.size();
    OXBOW_RETURN_IF_ERROR(write(bytes));
  }
  return absl::OkStatus();
}

absl::Status WriteSafetensorsPiecewise(
    const std::filesystem::path& path, const std::map<std::string, TensorHeader>& tensors,
    const std::map<std::string, std::string>& metadata,
    const std::function<absl::StatusOr<std::string>(const std::string& name)>& bytes_of) {
  OXBOW_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path));
  std::string held;
  OXBOW_RETURN_IF_ERROR(StreamSafetensors(
      tensors, metadata,
      [&](const std::string& name) -> absl::StatusOr<std::string_view> {
        OXBOW_ASSIGN_OR_RETURN(held, bytes_of(name));
        return held;
      },
      [&](std::string_view piece) { return file.Append(piece); }));
  return file.Commit();
}

}  // namespace oxbow::io
