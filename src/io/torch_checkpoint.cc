// SPDX-License-Identifier: Apache-2.0
#include "io/torch_checkpoint.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "io/legacy_checkpoint.h"
#include "io/mapped_file.h"
#include "io/mask2former_names.h"
#include "io/pickle_machine.h"
#include "io/stored_zip.h"

namespace oxbow::io {

namespace {

using Kind = PickleValue::Kind;

constexpr char kOrderedDict[] = "collections OrderedDict";
constexpr char kRebuildTensor[] = "torch._utils _rebuild_tensor_v2";
constexpr char kRebuildParameter[] = "torch._utils _rebuild_parameter";
constexpr char kStateDict[] = "state_dict";
constexpr char kReservedName[] = "__metadata__";  // In safetensors.
constexpr size_t kDimensionsMax = 64;
constexpr size_t kNameMax = 1000;

struct StorageType {
  std::string_view global;
  DType dtype;
};
constexpr StorageType kStorageTypes[] = {
    {"torch FloatStorage", DType::kF32},     {"torch HalfStorage", DType::kF16},
    {"torch BFloat16Storage", DType::kBF16}, {"torch DoubleStorage", DType::kF64},
    {"torch LongStorage", DType::kI64},      {"torch IntStorage", DType::kI32},
    {"torch ByteStorage", DType::kU8},       {"torch BoolStorage", DType::kBool},
    {"torch CharStorage", DType::kI8}};

const StorageType* StorageTypeNamed(std::string_view global) {
  const auto* const found = std::ranges::find(kStorageTypes, global, &StorageType::global);
  return found == std::end(kStorageTypes) ? nullptr : found;
}

std::string Shown(std::string_view foreign) {
  return absl::CHexEscape(std::string(foreign.substr(0, 100)));
}

absl::Status Corrupt(const std::string& what) {
  return absl::DataLossError("corrupt checkpoint: " + what);
}

// Arguments of `kinds`, or nothing.
bool HaveKinds(const PickleValue& arguments, std::initializer_list<Kind> kinds) {
  if (arguments.kind != Kind::kTuple || arguments.items.size() < kinds.size()) return false;
  return std::equal(kinds.begin(), kinds.end(), arguments.items.begin(),
                    [](Kind kind, const PickleValue* value) { return value->kind == kind; });
}

std::optional<std::vector<int64_t>> IntegersOf(const PickleValue& tuple) {
  std::vector<int64_t> integers;
  if (tuple.items.size() > kDimensionsMax) return std::nullopt;
  for (const PickleValue* const item : tuple.items) {
    if (item->kind != Kind::kInt || item->integer < 0) return std::nullopt;
    integers.push_back(item->integer);
  }
  return integers;
}

struct Storage {
  DType dtype = DType::kF32;
  std::string_view bytes;
  uint64_t elements() const { return bytes.size() / WidthOf(dtype); }
};

// Whether all elements of a view lie within `elements`.
bool Fits(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides, uint64_t offset,
          uint64_t elements) {
  if (std::ranges::count(shape, 0) > 0) return true;
  if (offset >= elements) return false;
  uint64_t left = elements - 1 - offset;  // How far the last element may be from the first.
  for (size_t i = 0; i < shape.size(); ++i) {
    const auto steps = static_cast<uint64_t>(shape[i]) - 1,
               stride = static_cast<uint64_t>(strides[i]);
    if (steps == 0) continue;
    if (stride > left / steps) return false;
    left -= steps * stride;
  }
  return true;
}

// The functions that a state dict needs.
class StateDictCalls : public PickleCalls {
 public:
  struct Tensor {
    TensorHeader header;
    StorageView view;
  };

  StateDictCalls(const std::map<std::string, std::string_view>& entries, std::string root)
      : entries_(entries), root_(std::move(root)) {}

  absl::Status Allow(std::string_view global) override {
    if (global == kOrderedDict || global == kRebuildTensor || global == kRebuildParameter ||
        StorageTypeNamed(global) != nullptr) {
      return absl::OkStatus();
    }
    std::string name = Shown(global);
    std::ranges::replace(name, ' ', '.');
    return absl::FailedPreconditionError(
        "the file asks for " + name +
        ", which is not part of a state dict of plain tensors; nothing was run. Save "
        "`model.state_dict()` alone, or convert the file where you trust it");
  }

  absl::StatusOr<PickleValue*> Call(std::string_view global, const PickleValue& arguments,
                                    PickleHeap& heap) override {
    if (global == kOrderedDict && arguments.items.empty()) {
      return heap.New({.kind = Kind::kDict});
    }
    if (global == kRebuildTensor) return RebuildTensor(arguments, heap);
    if (global == kRebuildParameter && HaveKinds(arguments, {Kind::kObject})) {
      return arguments.items[0];
    }
    return Corrupt("a call with wrong arguments: " + Shown(global));
  }

  absl::StatusOr<PickleValue*> Find(const PickleValue& id, PickleHeap& heap) override {
    if (!HaveKinds(id, {Kind::kText, Kind::kGlobal, Kind::kText, Kind::kText, Kind::kInt}) ||
        id.items[0]->text != "storage") {
      return Corrupt("a reference that is no storage");
    }
    const StorageType* const type = StorageTypeNamed(id.items[1]->text);
    if (type == nullptr) return Corrupt("a storage without a type");
    const std::string name = absl::StrCat(root_, "data/", std::string(id.items[2]->text));
    const auto entry = entries_.find(name);
    if (entry == entries_.end()) return Corrupt("a storage is missing: " + Shown(name));
    const int64_t elements = id.items[4]->integer;
    const auto bytes = ByteSize(type->dtype, {elements});
    if (!bytes.ok() || *bytes != entry->second.size()) {
      return Corrupt(absl::StrCat("storage ", Shown(name), " has ", entry->second.size(),
                                  " bytes for ", elements, " elements of ", NameOf(type->dtype)));
    }
    storages_.push_back({.dtype = type->dtype, .bytes = entry->second});
    return heap.New({.kind = Kind::kObject, .integer = -static_cast<int64_t>(storages_.size())});
  }

  // What kObject means: a tensor, or nothing if it is a storage.
  const Tensor* TensorOf(const PickleValue& value) const {
    if (value.kind != Kind::kObject || value.integer < 0) return nullptr;
    return &tensors_[static_cast<size_t>(value.integer)];
  }

 private:
  absl::StatusOr<PickleValue*> RebuildTensor(const PickleValue& arguments, PickleHeap& heap) {
    if (!HaveKinds(arguments, {Kind::kObject, Kind::kInt, Kind::kTuple, Kind::kTuple}) ||
        arguments.items[0]->integer >= 0 || arguments.items[1]->integer < 0) {
      return Corrupt("a tensor with wrong arguments");
    }
    const Storage& storage = storages_[static_cast<size_t>(-1 - arguments.items[0]->integer)];
    const auto offset = static_cast<uint64_t>(arguments.items[1]->integer);
    const auto shape = IntegersOf(*arguments.items[2]), strides = IntegersOf(*arguments.items[3]);
    if (!shape.has_value() || !strides.has_value() || shape->size() != strides->size()) {
      return Corrupt("a tensor with wrong arguments");
    }
    if (!ByteSize(storage.dtype, *shape, storage.bytes.size()).ok() ||
        !Fits(*shape, *strides, offset, storage.elements())) {
      return Corrupt("a tensor is not within its storage");
    }
    tensors_.push_back({.header = {.dtype = storage.dtype, .shape = *shape},
                        .view = {.storage = storage.bytes, .offset = offset, .strides = *strides}});
    return heap.New({.kind = Kind::kObject, .integer = static_cast<int64_t>(tensors_.size()) - 1});
  }

  const std::map<std::string, std::string_view>& entries_;
  const std::string root_;
  std::vector<Storage> storages_;  // kObject -1, -2, ..
  std::vector<Tensor> tensors_;    // kObject 0, 1, ..
};

// The archive's folder, with its slash: where data.pkl is.
absl::StatusOr<std::string> RootOf(const std::map<std::string, std::string_view>& entries) {
  constexpr std::string_view kPickle = "/data.pkl";
  std::vector<std::string> roots;
  for (const auto& [name, bytes] : entries) {
    const size_t slash = name.find('/');
    if (slash == std::string::npos || std::string_view(name).substr(slash) != kPickle) continue;
    roots.push_back(name.substr(0, slash + 1));
  }
  if (roots.size() == 1) return roots[0];
  return absl::FailedPreconditionError(
      absl::StrCat("the archive is not one of torch.save: it has ", roots.size(), " data.pkl"));
}

absl::Status CheckByteOrder(const std::map<std::string, std::string_view>& entries,
                            const std::string& root) {
  const auto order = entries.find(root + "byteorder");
  if (order == entries.end() || order->second == "little") return absl::OkStatus();
  return absl::FailedPreconditionError("the file was written on a machine of another byte order: " +
                                       Shown(order->second));
}

struct Parts {
  std::map<std::string, std::string_view> entries;
  std::string root;  // Begins the names of entries.
  std::string_view pickle;
};

absl::StatusOr<Parts> PartsOf(std::string_view file) {
  if (IsLegacyCheckpoint(file)) {
    OXBOW_ASSIGN_OR_RETURN(LegacyCheckpoint legacy,
                           ReadLegacyCheckpoint(file, [](std::string_view type) {
                             const StorageType* const found = StorageTypeNamed(type);
                             return found == nullptr ? 0 : WidthOf(found->dtype);
                           }));
    return Parts{.entries = std::move(legacy.entries), .root = "", .pickle = legacy.pickle};
  }
  Parts parts;
  OXBOW_ASSIGN_OR_RETURN(parts.entries, ReadStoredZip(file));
  OXBOW_ASSIGN_OR_RETURN(parts.root, RootOf(parts.entries));
  OXBOW_RETURN_IF_ERROR(CheckByteOrder(parts.entries, parts.root));
  parts.pickle = parts.entries.at(parts.root + "data.pkl");
  return parts;
}

// The dict whose values are tensors.
absl::StatusOr<const PickleValue*> StateDictOf(const PickleValue& outermost) {
  if (outermost.kind != Kind::kDict) {
    return absl::FailedPreconditionError("the file holds no dict of tensors");
  }
  for (size_t i = 0; i < outermost.items.size(); i += 2) {
    const PickleValue &key = *outermost.items[i], *const value = outermost.items[i + 1];
    if (key.kind == Kind::kText && key.text == kStateDict && value->kind == Kind::kDict) {
      return value;
    }
  }
  return &outermost;
}

bool IsTensorName(const PickleValue& key) {
  return key.kind == Kind::kText && !key.text.empty() && key.text.size() <= kNameMax &&
         key.text != kReservedName &&
         std::ranges::all_of(key.text, [](char c) { return c >= 0x20 && c < 0x7f; });
}

}  // namespace

absl::StatusOr<TorchCheckpoint> TorchCheckpoint::Parse(std::string_view file,
                                                       const std::string& name) {
  auto checkpoint = ParseUnnamed(file);
  if (!checkpoint.ok()) return Annotate(checkpoint.status(), name);
  return checkpoint;
}

absl::StatusOr<TorchCheckpoint> TorchCheckpoint::ParseUnnamed(std::string_view file) {
  OXBOW_ASSIGN_OR_RETURN(const Parts parts, PartsOf(file));
  StateDictCalls calls(parts.entries, parts.root);
  PickleHeap heap;
  OXBOW_ASSIGN_OR_RETURN(const PickleValue* const outermost, RunPickle(parts.pickle, calls, heap));
  OXBOW_ASSIGN_OR_RETURN(const PickleValue* const dict, StateDictOf(*outermost));
  TorchCheckpoint checkpoint;
  for (size_t i = 0; i < dict->items.size(); i += 2) {
    const PickleValue& key = *dict->items[i];
    const auto* const tensor = calls.TensorOf(*dict->items[i + 1]);
    if (tensor == nullptr) {
      checkpoint.skipped_.push_back(key.kind == Kind::kText ? Shown(key.text) : "(not a name)");
      continue;
    }
    if (!IsTensorName(key)) {
      return absl::FailedPreconditionError("a tensor's name is not one of printable ASCII: " +
                                           Shown(key.text));
    }
    const std::string tensor_name(key.text);
    checkpoint.headers_.insert_or_assign(tensor_name, tensor->header);
    checkpoint.views_.insert_or_assign(tensor_name, tensor->view);
  }
  OXBOW_RETURN_IF_ERROR(checkpoint.CheckSizes(file.size()));
  return checkpoint;
}

absl::Status TorchCheckpoint::CheckSizes(uint64_t file_bytes) const {
  if (headers_.empty()) return absl::FailedPreconditionError("the file holds no tensors");
  uint64_t left = kSharedStoragesMax * file_bytes;
  for (const auto& [name, header] : headers_) {
    const auto bytes = ByteSize(header.dtype, header.shape, left);
    if (!bytes.ok()) {
      return absl::FailedPreconditionError(
          absl::StrCat("its tensors share storages and are together more than ", kSharedStoragesMax,
                       " times the file: ", name));
    }
    left -= *bytes;
  }
  return absl::OkStatus();
}

std::string TorchCheckpoint::Read(const std::string& tensor) const {
  const auto header = headers_.find(tensor);
  OXBOW_CHECK(header != headers_.end()) << "no tensor " << tensor;
  const StorageView& view = views_.at(tensor);
  const std::vector<int64_t>& shape = header->second.shape;
  const uint64_t width = WidthOf(header->second.dtype);
  const uint64_t elements = *ByteSize(header->second.dtype, shape) / width;
  std::string bytes;
  bytes.reserve(elements * width);
  std::vector<int64_t> index(shape.size(), 0);
  // A run of elements that lie next to each other: the last dimension, if it has stride 1.
  const bool row = !shape.empty() && view.strides.back() == 1;
  const uint64_t run = row ? static_cast<uint64_t>(shape.back()) : 1;
  for (uint64_t done = 0; done < elements; done += run) {
    uint64_t at = view.offset;
    for (size_t i = 0; i < shape.size(); ++i) {
      at += static_cast<uint64_t>(index[i]) * static_cast<uint64_t>(view.strides[i]);
    }
    bytes.append(view.storage.substr(at * width, run * width));
    for (size_t i = row ? shape.size() - 1 : shape.size(); i-- > 0;) {
      if (++index[i] < shape[i]) break;
      index[i] = 0;
    }
  }
  return bytes;
}

absl::StatusOr<ConvertedWeights> ConvertTorchCheckpoint(const std::filesystem::path& from,
                                                        const std::filesystem::path& to) {
  OXBOW_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(from.string()));
  OXBOW_ASSIGN_OR_RETURN(const TorchCheckpoint checkpoint,
                         TorchCheckpoint::Parse(file.bytes(), from.string()));
  ConvertedWeights converted{.skipped = checkpoint.skipped()};
  Mask2FormerNames names;
  if (IsMmdetMask2Former(checkpoint.headers())) {
    auto mapped = FromMmdet(checkpoint.headers());
    if (!mapped.ok()) return Annotate(mapped.status(), from.string());
    names = *std::move(mapped);
    converted.renamed = "mmdetection's Mask2Former";
  } else {
    names.headers = checkpoint.headers();
    for (const auto& [name, header] : names.headers) names.sources[name] = {.name = name};
  }
  converted.tensors = names.headers.size();
  OXBOW_RETURN_IF_ERROR(WriteSafetensorsPiecewise(
      to, names.headers, {}, [&](const std::string& name) -> absl::StatusOr<std::string> {
        const TensorSource& source = names.sources.at(name);
        std::string bytes =
            BytesOf(source, checkpoint.headers().at(source.name), checkpoint.Read(source.name));
        converted.bytes += bytes.size();
        return bytes;
      }));
  return converted;
}

}  // namespace oxbow::io
