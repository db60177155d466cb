// SPDX-License-Identifier: Apache-2.0
#include "services/weights/tensor_place.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/checksum.h"
#include "base/status_macros.h"

namespace oxbow::weights {
namespace {

absl::Status Changed(const std::string& name) {
  return absl::DataLossError(
      absl::StrCat("the run's model has changed since the run began: bring its file back: ", name));
}

class MemoryPlace : public TensorPlace {
 public:
  MemoryPlace(std::string_view bytes, std::shared_ptr<const void> owner)
      : bytes_(bytes), owner_(std::move(owner)) {}
  uint64_t size() const override { return bytes_.size(); }
  absl::Status Read(uint64_t begin, std::span<char> to) const override {
    std::memcpy(to.data(), bytes_.data() + begin, to.size());
    return absl::OkStatus();
  }
  std::string name() const override { return "memory"; }

 private:
  const std::string_view bytes_;
  const std::shared_ptr<const void> owner_;
};

class FilePlace : public TensorPlace {
 public:
  FilePlace(std::shared_ptr<const OpenedFile> file, uint64_t begin, uint64_t size)
      : file_(std::move(file)), begin_(begin), size_(size) {}
  uint64_t size() const override { return size_; }
  absl::Status Read(uint64_t begin, std::span<char> to) const override {
    uint64_t at = begin_ + begin;
    while (!to.empty()) {
      const ssize_t got =
          ::pread(file_->descriptor.value, to.data(), to.size(), static_cast<off_t>(at));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return ErrnoStatus("cannot read", file_->path, errno);
      if (got == 0) return Changed(file_->path);
      at += static_cast<uint64_t>(got);
      to = to.subspan(static_cast<size_t>(got));
    }
    return absl::OkStatus();
  }
  std::string name() const override { return file_->path; }

 private:
  const std::shared_ptr<const OpenedFile> file_;
  const uint64_t begin_, size_;
};

}  // namespace

std::shared_ptr<const TensorPlace> PlaceInMemory(std::string_view bytes,
                                                 std::shared_ptr<const void> owner) {
  return std::make_shared<MemoryPlace>(bytes, std::move(owner));
}

absl::StatusOr<std::shared_ptr<const OpenedFile>> OpenedFile::Open(const std::string& path) {
  auto file = std::make_shared<OpenedFile>();
  file->path = path;
  file->descriptor = Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file->descriptor.value < 0) return ErrnoStatus("cannot open", path, errno);
  return file;
}

std::shared_ptr<const TensorPlace> PlaceInFile(std::shared_ptr<const OpenedFile> file,
                                               uint64_t begin, uint64_t size) {
  return std::make_shared<FilePlace>(std::move(file), begin, size);
}

absl::StatusOr<std::shared_ptr<const std::string>> PlacedChunk::Read() const {
  auto content = std::make_shared<std::string>(bytes, '\0');
  OXBOW_RETURN_IF_ERROR(place->Read(begin, *content));
  if (Checksum128(*content) != xxh3) return Changed(place->name());
  return content;
}

std::shared_ptr<const TensorPlace> FilePlaces::Find(const std::string& name,
                                                    const io::TensorHeader& wanted) {
  if (!files_.Has(name)) return nullptr;
  const io::TensorHeader& stored = files_.headers().at(name);
  if (stored.dtype != wanted.dtype || stored.shape != wanted.shape) return nullptr;
  const std::string path = files_.FileOf(name);
  auto& file = opened_[path];
  if (file == nullptr) {
    auto opened = OpenedFile::Open(path);
    if (!opened.ok()) return nullptr;
    file = *std::move(opened);
  }
  return PlaceInFile(file, files_.OffsetOf(name), files_.BytesOf(name).size());
}

}  // namespace oxbow::weights
