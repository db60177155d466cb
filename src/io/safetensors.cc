#include "io/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/file.h"
#include "base/status_macros.h"

namespace oxbow::io {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kHeaderBytesMax = 100'000'000;
constexpr uint64_t kLengthBytes = 8;
constexpr char kMetadata[] = "__metadata__";

struct Entry {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  uint64_t begin = 0;
  uint64_t end = 0;
};

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

absl::StatusOr<Entry> ParseEntry(const std::string& name, const Json& json, uint64_t data_bytes) {
  const auto corrupt = [](const char* what) { return absl::DataLossError(what); };
  if (!json.is_object() || !json.contains("dtype") || !json.contains("shape") ||
      !json.contains("data_offsets")) {
    return corrupt("header entry lacks dtype, shape or data_offsets");
  }
  const Json& dtype = json["dtype"];
  const Json& shape = json["shape"];
  const Json& offsets = json["data_offsets"];
  if (!dtype.is_string()) return corrupt("dtype is not a string");
  Entry entry{.name = name};
  OXBOW_ASSIGN_OR_RETURN(entry.dtype, DTypeNamed(dtype.get<std::string>()));
  if (!shape.is_array()) return corrupt("shape is not a list");
  for (const Json& dimension : shape) {
    if (!dimension.is_number_unsigned() || dimension.get<uint64_t>() > INT64_MAX) {
      return corrupt("shape holds something else than sizes");
    }
    entry.shape.push_back(static_cast<int64_t>(dimension.get<uint64_t>()));
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
  const auto declared = ByteSize(entry.dtype, entry.shape, data_bytes);
  if (!declared.ok() || *declared != entry.end - entry.begin) {
    return absl::DataLossError(absl::StrCat("shape [", absl::StrJoin(entry.shape, ","), "] ",
                                            NameOf(entry.dtype), " does not take the ",
                                            entry.end - entry.begin, " bytes of data_offsets"));
  }
  return entry;
}

// The tensors must tile the data section: no hole hides bytes, no overlap shares them.
absl::Status CheckTiling(std::vector<Entry>& entries, uint64_t data_bytes) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  uint64_t position = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != position) {
      return absl::DataLossError(absl::StrCat("tensor '", entry.name, "': data begin at ",
                                              entry.begin, ", expected ", position,
                                              " (hole or overlap)"));
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

// What a header says, checked against the bytes present.
struct Layout {
  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;
  std::string_view data;
};

absl::StatusOr<Layout> ParseLayout(std::string_view bytes) {
  if (bytes.size() < kLengthBytes) {
    return absl::DataLossError(absl::StrCat("truncated: ", bytes.size(), " bytes"));
  }
  uint64_t header_bytes = 0;
  for (size_t i = kLengthBytes; i-- > 0;) {
    header_bytes = header_bytes << 8 | static_cast<unsigned char>(bytes[i]);
  }
  if (header_bytes > kHeaderBytesMax || header_bytes > bytes.size() - kLengthBytes) {
    return absl::DataLossError(absl::StrCat("truncated, or not safetensors: header of ",
                                            header_bytes, " bytes in a file of ", bytes.size()));
  }
  const std::string_view header = bytes.substr(kLengthBytes, header_bytes);
  Layout layout{.data = bytes.substr(kLengthBytes + header_bytes)};
  std::string duplicate;
  const Json json = ParseHeader(header, duplicate);
  if (json.is_discarded() || !json.is_object() || header.front() != '{') {
    return absl::DataLossError("header is not a JSON object");
  }
  if (!duplicate.empty()) {
    return absl::DataLossError(absl::StrCat("duplicate key in header: ", duplicate));
  }
  for (const auto& [name, value] : json.items()) {
    if (name == kMetadata) {
      OXBOW_ASSIGN_OR_RETURN(layout.metadata, ParseMetadata(value));
      continue;
    }
    auto entry = ParseEntry(name, value, layout.data.size());
    if (!entry.ok()) return Annotate(entry.status(), "tensor '" + name + "'");
    layout.entries.push_back(*std::move(entry));
  }
  OXBOW_RETURN_IF_ERROR(CheckTiling(layout.entries, layout.data.size()));
  return layout;
}

absl::StatusOr<Safetensors> Parse(std::string_view bytes) {
  OXBOW_ASSIGN_OR_RETURN(Layout layout, ParseLayout(bytes));
  Safetensors result{.metadata = std::move(layout.metadata)};
  for (Entry& entry : layout.entries) {
    result.tensors[entry.name] =
        TensorBytes{.dtype = entry.dtype,
                    .shape = std::move(entry.shape),
                    .data = std::string(layout.data.substr(entry.begin, entry.end - entry.begin))};
  }
  return result;
}

// A read-only view of a file, unmapped when it leaves scope.
class MappedFile {
 public:
  static absl::StatusOr<MappedFile> Open(const std::string& path) {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) {
      const std::string message = absl::StrCat("cannot open: ", std::strerror(errno), ": ", path);
      return errno == ENOENT || errno == ENOTDIR ? absl::NotFoundError(message)
                                                 : absl::PermissionDeniedError(message);
    }
    MappedFile file;
    struct stat info {};
    const bool regular = ::fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode);
    if (regular && info.st_size > 0) {
      void* address =
          ::mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_PRIVATE, descriptor, 0);
      if (address != MAP_FAILED) {
        file.bytes_ = {static_cast<const char*>(address), static_cast<size_t>(info.st_size)};
      }
    }
    ::close(descriptor);
    if (!regular) return absl::InvalidArgumentError(absl::StrCat("not a file: ", path));
    if (info.st_size > 0 && file.bytes_.empty()) {
      return absl::ResourceExhaustedError(absl::StrCat("cannot map: ", path));
    }
    return file;
  }
  MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile() {
    if (!bytes_.empty()) ::munmap(const_cast<char*>(bytes_.data()), bytes_.size());
  }
  std::string_view bytes() const { return bytes_; }

 private:
  MappedFile() = default;
  std::string_view bytes_;
};

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
  auto layout = ParseLayout(file.bytes());
  if (!layout.ok()) return Annotate(layout.status(), path.string());
  std::map<std::string, TensorHeader> headers;
  for (Entry& entry : layout->entries) {
    headers[entry.name] = {.dtype = entry.dtype, .shape = std::move(entry.shape)};
  }
  return headers;
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
  std::string text = header.dump(-1, ' ', false, Json::error_handler_t::replace);
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
