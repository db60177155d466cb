// SPDX-License-Identifier: Apache-2.0
#include "io/adapter_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "io/adapter_names.h"
#include "io/lora_file.h"

namespace oxbow::io {
namespace {

namespace fs = std::filesystem;

constexpr char kSuffix[] = ".safetensors";
constexpr uint64_t kConfigBytesMax = 1 << 20;
constexpr size_t kFilesMax = 1000;

float Float32Of(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1fu;
  const uint32_t fraction = half & 0x3ffu;
  if (exponent == 0) {  // Zero, or below the smallest normal number.
    const float value = std::ldexp(static_cast<float>(fraction), -24);
    return sign == 0 ? value : -value;
  }
  const uint32_t wide = exponent == 0x1fu ? 0xffu : exponent + 112;
  return std::bit_cast<float>(sign | (wide << 23) | (fraction << 13));
}

// The same values as float32; one-sided sizes behind the second are dropped, which convolutions of
// one pixel have.
absl::StatusOr<TensorBytes> MatrixOf(TensorBytes tensor, const std::string& name) {
  const auto bad = [&](const std::string& what) {
    return absl::FailedPreconditionError(absl::StrCat("adapter: ", what, ": ", name));
  };
  while (tensor.shape.size() > 2 && tensor.shape.back() == 1) tensor.shape.pop_back();
  if (tensor.shape.size() != 2) return bad("not a matrix");
  if (tensor.dtype != DType::kF32) {
    if (tensor.dtype != DType::kF16 && tensor.dtype != DType::kBF16) {
      return bad(
          absl::StrCat("of type ", NameOf(tensor.dtype), ", and F32, F16 and BF16 are read"));
    }
    std::string wide(tensor.data.size() * 2, '\0');
    for (size_t i = 0; i < tensor.data.size(); i += sizeof(uint16_t)) {
      uint16_t bits;
      std::memcpy(&bits, tensor.data.data() + i, sizeof bits);
      const float value = tensor.dtype == DType::kF16
                              ? Float32Of(bits)
                              : std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
      std::memcpy(wide.data() + 2 * i, &value, sizeof value);
    }
    tensor.data = std::move(wide);
    tensor.dtype = DType::kF32;
  }
  for (size_t i = 0; i < tensor.data.size(); i += sizeof(float)) {
    float value;
    std::memcpy(&value, tensor.data.data() + i, sizeof value);
    if (!std::isfinite(value)) return bad("holds NaN or infinity");
  }
  return tensor;
}

absl::StatusOr<double> NumberOf(const TensorBytes& tensor, const std::string& name) {
  TensorBytes one = tensor;
  one.shape = {1, 1};
  if (tensor.data.size() == WidthOf(tensor.dtype)) {
    if (tensor.dtype == DType::kI64) {
      int64_t value;
      std::memcpy(&value, tensor.data.data(), sizeof value);
      if (value > 0) return static_cast<double>(value);
    } else if (const auto matrix = MatrixOf(std::move(one), name); matrix.ok()) {
      float value;
      std::memcpy(&value, matrix->data.data(), sizeof value);
      if (value > 0) return static_cast<double>(value);
    }
  }
  return absl::FailedPreconditionError(absl::StrCat("adapter: not a positive number: ", name));
}

// The entries of a file for one of its modules.
struct Entry {
  std::optional<TensorBytes> a;
  std::optional<TensorBytes> b;
  std::optional<double> alpha;
};

absl::StatusOr<std::map<std::string, Entry>> EntriesOf(Safetensors&& content) {
  std::map<std::string, Entry> entries;
  for (auto& [name, tensor] : content.tensors) {
    OXBOW_ASSIGN_OR_RETURN(const AdapterKey key, ParseAdapterKey(name));
    OXBOW_RETURN_IF_ERROR(Annotate(Validate(tensor), name));
    Entry& entry = entries[key.module];
    if (key.part == AdapterPart::kAlpha) {
      OXBOW_ASSIGN_OR_RETURN(entry.alpha, NumberOf(tensor, name));
      continue;
    }
    std::optional<TensorBytes>& matrix = key.part == AdapterPart::kDown ? entry.a : entry.b;
    if (matrix) {
      return absl::FailedPreconditionError(absl::StrCat("adapter: two matrices of: ", name));
    }
    OXBOW_ASSIGN_OR_RETURN(matrix, MatrixOf(std::move(tensor), name));
  }
  return entries;
}

absl::StatusOr<std::optional<DeclaredStrength>> StrengthOf(
    const std::string& config, const std::map<std::string, std::string>& metadata) {
  std::optional<DeclaredStrength> strength;
  const auto header = metadata.find("lora_adapter_metadata");
  if (!config.empty()) {
    OXBOW_ASSIGN_OR_RETURN(strength, ParseStrength(config, ""));
  } else if (header != metadata.end()) {
    OXBOW_ASSIGN_OR_RETURN(strength, ParseStrength(header->second, "transformer."));
  }
  return strength;
}

// The file's own alpha of a module, else what is declared, else 1 in all.
absl::StatusOr<double> ScaleOf(const std::string& module, const Entry& entry,
                               const std::optional<DeclaredStrength>& declared) {
  const int64_t rank = entry.a->shape[0];
  const double own = entry.alpha.value_or(0) / static_cast<double>(rank);
  if (!declared) return entry.alpha ? own : 1;
  const double said = declared->ScaleOf(module, rank);
  if (entry.alpha && own != said) {
    return absl::FailedPreconditionError(
        absl::StrCat("adapter: has an alpha that is not the declared one: ", module));
  }
  return said;
}

TensorBytes RowsOf(const TensorBytes& tensor, int64_t begin, int64_t count) {
  const size_t width = static_cast<size_t>(tensor.shape[1]) * sizeof(float);
  return {.dtype = DType::kF32,
          .shape = {count, tensor.shape[1]},
          .data = tensor.data.substr(static_cast<size_t>(begin) * width,
                                     static_cast<size_t>(count) * width)};
}

// Adds the modules of the network that one of the file stands for.
absl::Status Add(const std::string& name, const ModulesOfKey& parts, Entry entry,
                 const std::optional<DeclaredStrength>& declared, StoredAdapter& adapter) {
  const auto bad = [&](const std::string& what) {
    return absl::FailedPreconditionError(absl::StrCat("adapter: ", what, ": ", name));
  };
  if (!entry.a || !entry.b) return bad("matrix without its pair, or an alpha without both");
  const int64_t rank = entry.a->shape[0];
  int64_t rows = 0;
  for (const ModuleRows& part : parts.rows) rows += part.rows;
  const int64_t in = parts.rows.front().columns;
  if (rank < 1 || entry.a->shape[1] != in || entry.b->shape[0] != rows ||
      entry.b->shape[1] != rank) {
    return bad(absl::StrCat("does not fit the network, whose weight is [", rows, ",", in, "]: A [",
                            rank, ",", entry.a->shape[1], "], B [", entry.b->shape[0], ",",
                            entry.b->shape[1], "]"));
  }
  if (parts.halves_swapped) {
    std::string& bytes = entry.b->data;
    std::rotate(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(bytes.size() / 2),
                bytes.end());
  }
  int64_t begin = 0;
  for (const ModuleRows& part : parts.rows) {
    OXBOW_ASSIGN_OR_RETURN(const double scale,
                           ScaleOf(parts.rows.size() == 1 ? part.module : name, entry, declared));
    StoredAdapter::Module module{
        .a = *entry.a, .b = RowsOf(*entry.b, begin, part.rows), .scale = scale};
    if (!adapter.modules.emplace(part.module, std::move(module)).second) {
      return bad("a second adapter of the same module");
    }
    begin += part.rows;
  }
  return absl::OkStatus();
}

struct Files {
  fs::path adapter;
  fs::path second = {};  // Empty, or one that must be the same adapter.
};

absl::StatusOr<Files> FilesOf(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    if (fs::exists(path, ignored)) return Files{.adapter = path};
    return absl::NotFoundError(absl::StrCat("no adapter there: ", path.string()));
  }
  const bool peft = fs::exists(path / kPeftFile, ignored);
  const bool diffusers = fs::exists(path / kDiffusersFile, ignored);
  if (peft && diffusers) return Files{path / kPeftFile, path / kDiffusersFile};
  if (peft || diffusers) return Files{.adapter = path / (peft ? kPeftFile : kDiffusersFile)};
  std::vector<fs::path> found;
  for (fs::directory_iterator it(path, ignored), end; it != end && found.size() < kFilesMax;
       it.increment(ignored)) {
    if (it->path().extension() == kSuffix) found.push_back(it->path());
  }
  std::sort(found.begin(), found.end());
  if (found.size() == 1) return Files{.adapter = found.front()};
  if (found.empty()) {
    return absl::NotFoundError(absl::StrCat("no adapter there (", kPeftFile, ", ", kDiffusersFile,
                                            " or one .safetensors): ", path.string()));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("several adapters are there; name one of them: ", found[0].string(), ", ",
                   found[1].filename().string(), found.size() > 2 ? ", ..." : ""));
}

absl::StatusOr<StoredAdapter> ReadFileOf(const fs::path& file, const AdaptedNetwork& network) {
  OXBOW_ASSIGN_OR_RETURN(Safetensors content, ReadSafetensors(file));
  std::string config;
  std::error_code ignored;
  const fs::path beside = file.parent_path() / kPeftConfig;
  if (file.filename() == kPeftFile) {
    if (!fs::exists(beside, ignored)) {
      return absl::NotFoundError(
          absl::StrCat("the adapter's strength is in a file that is not there: ", beside.string()));
    }
    OXBOW_ASSIGN_OR_RETURN(config, ReadFile(beside, kConfigBytesMax));
  }
  auto adapter = ParseAdapter(std::move(content), config, network);
  if (!adapter.ok()) return Annotate(adapter.status(), file.string());
  adapter->file = file;
  return adapter;
}

bool IsSame(const StoredAdapter& one, const StoredAdapter& other) {
  const auto same = [](const auto& left, const auto& right) {
    return left.first == right.first && left.second.a.shape == right.second.a.shape &&
           left.second.a.data == right.second.a.data &&
           Scaled(left.second.b, left.second.scale).data ==
               Scaled(right.second.b, right.second.scale).data;
  };
  return std::equal(one.modules.begin(), one.modules.end(), other.modules.begin(),
                    other.modules.end(), same);
}

}  // namespace

absl::StatusOr<StoredAdapter> ParseAdapter(Safetensors content, const std::string& config,
                                           const AdaptedNetwork& network) {
  OXBOW_ASSIGN_OR_RETURN(const auto declared, StrengthOf(config, content.metadata));
  OXBOW_ASSIGN_OR_RETURN(auto entries, EntriesOf(std::move(content)));
  if (entries.empty()) return absl::FailedPreconditionError("adapter: has no matrices");
  const AdapterNames names(network.transformer_class, network.tensors);
  StoredAdapter adapter;
  for (auto& [name, entry] : entries) {
    OXBOW_ASSIGN_OR_RETURN(const ModulesOfKey parts, names.Find(name));
    OXBOW_RETURN_IF_ERROR(Add(name, parts, std::move(entry), declared, adapter));
  }
  return adapter;
}

absl::StatusOr<StoredAdapter> ReadAdapter(const fs::path& path, const AdaptedNetwork& network) {
  OXBOW_ASSIGN_OR_RETURN(const Files files, FilesOf(path));
  OXBOW_ASSIGN_OR_RETURN(StoredAdapter adapter, ReadFileOf(files.adapter, network));
  if (files.second.empty()) return adapter;
  OXBOW_ASSIGN_OR_RETURN(const StoredAdapter second, ReadFileOf(files.second, network));
  if (IsSame(adapter, second)) return adapter;
  return absl::FailedPreconditionError(absl::StrCat(
      "two adapters are there, and they differ; name one of them: ", files.adapter.string(), ", ",
      files.second.filename().string()));
}

bool HasAdapter(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return path.extension() == kSuffix;
  for (fs::directory_iterator it(path, ignored), end; it != end; it.increment(ignored)) {
    if (it->path().extension() == kSuffix) return true;
  }
  return false;
}

}  // namespace oxbow::io
