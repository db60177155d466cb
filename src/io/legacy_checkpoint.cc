// SPDX-License-Identifier: Apache-2.0
#include "io/legacy_checkpoint.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "io/pickle_machine.h"

namespace oxbow::io {
namespace {

using Kind = PickleValue::Kind;

// The pickle of 0x1950a86a20f9469cfc6c.
constexpr std::string_view kMagic("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19.", 15);
constexpr int64_t kProtocol = 1001;

absl::Status Corrupt(const std::string& what) {
  return absl::DataLossError("corrupt checkpoint: " + what);
}

// Makes nothing: notes the storages that a pickle refers to.
class StorageNotes : public PickleCalls {
 public:
  explicit StorageNotes(const std::function<uint64_t(std::string_view)>& width_of)
      : width_of_(width_of) {}

  // What may be asked for is judged when the tensors are read.
  absl::Status Allow(std::string_view /*global*/) override { return absl::OkStatus(); }

  absl::StatusOr<PickleValue*> Call(std::string_view /*global*/, const PickleValue& /*arguments*/,
                                    PickleHeap& heap) override {
    return heap.New({.kind = Kind::kDict});
  }

  absl::StatusOr<PickleValue*> Find(const PickleValue& id, PickleHeap& heap) override {
    if (id.kind != Kind::kTuple || id.items.size() != 6 || id.items[1]->kind != Kind::kGlobal ||
        id.items[2]->kind != Kind::kText || id.items[5]->kind != Kind::kNone) {
      return Corrupt("a reference that is no storage of its own");
    }
    widths_[std::string(id.items[2]->text)] = width_of_(id.items[1]->text);
    return heap.New({.kind = Kind::kObject});
  }

  uint64_t WidthOf(const std::string& key) const {
    const auto found = widths_.find(key);
    return found == widths_.end() ? 0 : found->second;
  }

 private:
  const std::function<uint64_t(std::string_view)>& width_of_;
  std::map<std::string, uint64_t> widths_;
};

// Takes pickles and bytes from the front of a file.
class Front {
 public:
  Front(std::string_view rest, StorageNotes& notes) : rest_(rest), notes_(notes) {}

  absl::StatusOr<PickleValue*> Pickle() {
    size_t end = 0;
    OXBOW_ASSIGN_OR_RETURN(PickleValue* const value, RunPickle(rest_, notes_, heap_, &end));
    rest_.remove_prefix(end);
    return value;
  }

  absl::StatusOr<std::string_view> Storage(uint64_t width) {
    if (rest_.size() < sizeof(uint64_t)) return Corrupt("it ends early");
    uint64_t elements = 0;
    for (size_t i = sizeof elements; i-- > 0;) {
      elements = elements << 8 | static_cast<uint8_t>(rest_[i]);
    }
    rest_.remove_prefix(sizeof elements);
    if (width == 0 || elements > rest_.size() / width) return Corrupt("it ends early");
    const std::string_view bytes = rest_.substr(0, elements * width);
    rest_.remove_prefix(bytes.size());
    return bytes;
  }

  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
  StorageNotes& notes_;
  PickleHeap heap_;
};

}  // namespace

bool IsLegacyCheckpoint(std::string_view file) { return file.starts_with(kMagic); }

absl::StatusOr<LegacyCheckpoint> ReadLegacyCheckpoint(
    std::string_view file, const std::function<uint64_t(std::string_view type)>& width_of) {
  StorageNotes notes(width_of);
  Front front(file.substr(kMagic.size()), notes);
  OXBOW_ASSIGN_OR_RETURN(const PickleValue* const protocol, front.Pickle());
  if (protocol->kind != Kind::kInt || protocol->integer != kProtocol) {
    return absl::FailedPreconditionError("a file of torch before 1.6 of another protocol");
  }
  OXBOW_RETURN_IF_ERROR(front.Pickle().status());
  LegacyCheckpoint checkpoint{.pickle = front.rest(), .entries = {}};
  OXBOW_RETURN_IF_ERROR(front.Pickle().status());
  checkpoint.pickle.remove_suffix(front.rest().size());
  OXBOW_ASSIGN_OR_RETURN(const PickleValue* const keys, front.Pickle());
  if (keys->kind != Kind::kList) return Corrupt("no list of storages");
  for (const PickleValue* const key : keys->items) {
    if (key->kind != Kind::kText) return Corrupt("a storage without a name");
    const std::string name(key->text);
    const uint64_t width = notes.WidthOf(name);
    OXBOW_ASSIGN_OR_RETURN(const std::string_view bytes, front.Storage(width == 0 ? 1 : width));
    checkpoint.entries[absl::StrCat("data/", name)] = bytes;
  }
  return checkpoint;
}

}  // namespace oxbow::io
