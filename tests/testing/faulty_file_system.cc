// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/faulty_file_system.h"

namespace oxbow::buffer {
namespace {

class FaultyFile final : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  FaultyFile(std::unique_ptr<rocksdb::FSWritableFile> file, std::string name,
             FaultyFileSystem& owner)
      : FSWritableFileOwnerWrapper(std::move(file)), name_(std::move(name)), owner_(owner) {}

  rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                           rocksdb::IODebugContext* debug) override {
    rocksdb::IOStatus status = owner_.TakeRoom();
    if (status.ok()) status = FSWritableFileOwnerWrapper::Append(data, options, debug);
    if (status.ok()) owner_.Wrote(name_, data.size());
    return status;
  }
  rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                           const rocksdb::DataVerificationInfo&,
                           rocksdb::IODebugContext* debug) override {
    return Append(data, options, debug);
  }
  rocksdb::IOStatus Sync(const rocksdb::IOOptions& options,
                         rocksdb::IODebugContext* debug) override {
    const rocksdb::IOStatus status = FSWritableFileOwnerWrapper::Sync(options, debug);
    if (status.ok()) owner_.Synced(name_);
    return status;
  }
  rocksdb::IOStatus Fsync(const rocksdb::IOOptions& options,
                          rocksdb::IODebugContext* debug) override {
    const rocksdb::IOStatus status = FSWritableFileOwnerWrapper::Fsync(options, debug);
    if (status.ok()) owner_.Synced(name_);
    return status;
  }

 private:
  const std::string name_;
  FaultyFileSystem& owner_;
};

}  // namespace

FaultyFileSystem::FaultyFileSystem() : FileSystemWrapper(rocksdb::FileSystem::Default()) {}

void FaultyFileSystem::FillAfter(uint64_t appends) {
  absl::MutexLock lock(&mutex_);
  limited_ = true;
  was_full_ = false;
  appends_left_ = appends;
}

void FaultyFileSystem::Empty() {
  absl::MutexLock lock(&mutex_);
  limited_ = false;
}

bool FaultyFileSystem::was_full() const {
  absl::MutexLock lock(&mutex_);
  return was_full_;
}

rocksdb::IOStatus FaultyFileSystem::TakeRoom() {
  absl::MutexLock lock(&mutex_);
  if (!limited_) return rocksdb::IOStatus::OK();
  if (appends_left_ == 0) {
    was_full_ = true;
    return rocksdb::IOStatus::NoSpace("the disk of this test is full");
  }
  --appends_left_;
  return rocksdb::IOStatus::OK();
}

void FaultyFileSystem::Wrote(const std::string& name, uint64_t bytes) {
  absl::MutexLock lock(&mutex_);
  files_[name].written += bytes;
}

void FaultyFileSystem::Synced(const std::string& name) {
  std::function<void()> call;
  {
    absl::ReaderMutexLock change(&changes_);
    absl::MutexLock lock(&mutex_);
    Extent& file = files_[name];
    file.synced = file.written;
    call = on_sync_;
  }
  if (call != nullptr) call();
}

void FaultyFileSystem::OnSync(std::function<void()> call) {
  absl::MutexLock lock(&mutex_);
  on_sync_ = std::move(call);
}

rocksdb::IOStatus FaultyFileSystem::NewWritableFile(const std::string& name,
                                                    const rocksdb::FileOptions& options,
                                                    std::unique_ptr<rocksdb::FSWritableFile>* file,
                                                    rocksdb::IODebugContext* debug) {
  absl::ReaderMutexLock change(&changes_);
  std::unique_ptr<rocksdb::FSWritableFile> made;
  const rocksdb::IOStatus status = target()->NewWritableFile(name, options, &made, debug);
  if (!status.ok()) return status;
  absl::MutexLock lock(&mutex_);
  files_[name] = {};
  *file = std::make_unique<FaultyFile>(std::move(made), name, *this);
  return status;
}

rocksdb::IOStatus FaultyFileSystem::RenameFile(const std::string& from, const std::string& to,
                                               const rocksdb::IOOptions& options,
                                               rocksdb::IODebugContext* debug) {
  absl::ReaderMutexLock change(&changes_);
  const rocksdb::IOStatus status = target()->RenameFile(from, to, options, debug);
  absl::MutexLock lock(&mutex_);
  if (status.ok() && files_.count(from) > 0) {
    files_[to] = files_[from];
    files_.erase(from);
  }
  return status;
}

rocksdb::IOStatus FaultyFileSystem::LinkFile(const std::string& from, const std::string& to,
                                             const rocksdb::IOOptions& options,
                                             rocksdb::IODebugContext* debug) {
  absl::ReaderMutexLock change(&changes_);
  const rocksdb::IOStatus status = target()->LinkFile(from, to, options, debug);
  absl::MutexLock lock(&mutex_);
  if (status.ok() && files_.count(from) > 0) files_[to] = files_[from];
  return status;
}

rocksdb::IOStatus FaultyFileSystem::DeleteFile(const std::string& name,
                                               const rocksdb::IOOptions& options,
                                               rocksdb::IODebugContext* debug) {
  absl::ReaderMutexLock change(&changes_);
  return target()->DeleteFile(name, options, debug);
}

void FaultyFileSystem::CopySynced(const std::filesystem::path& from,
                                  const std::filesystem::path& to) const {
  namespace fs = std::filesystem;
  absl::MutexLock change(&changes_);
  std::error_code gone;  // Directories may still go.
  fs::create_directories(to);
  for (const auto& entry : fs::recursive_directory_iterator(from, gone)) {
    const fs::path copied = to / entry.path().lexically_relative(from);
    if (entry.is_directory(gone)) {
      fs::create_directories(copied);
    } else {
      fs::copy_file(entry.path(), copied, gone);
    }
  }
  absl::MutexLock lock(&mutex_);
  for (const auto& [name, extent] : files_) {
    const std::filesystem::path relative = std::filesystem::path(name).lexically_relative(from);
    const std::filesystem::path copied = to / relative;
    if (relative.native().starts_with("..") || !std::filesystem::exists(copied)) continue;
    std::filesystem::resize_file(copied, extent.synced);
  }
}

}  // namespace oxbow::buffer
