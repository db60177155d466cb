// SPDX-License-Identifier: Apache-2.0
// A file system for RocksDB whose disk fills up, and which knows what a power loss would leave.
#pragma once

#include <rocksdb/file_system.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace oxbow::buffer {

// Thread-safe.
class FaultyFileSystem final : public rocksdb::FileSystemWrapper {
 public:
  FaultyFileSystem();
  const char* Name() const override { return "FaultyFileSystem"; }

  // `appends` more writes to files succeed, then the disk is full.
  void FillAfter(uint64_t appends);
  void Empty();           // There is room again.
  bool was_full() const;  // Since FillAfter.

  // Called after each fsync that succeeded, by the thread that made it. Null: nothing is.
  void OnSync(std::function<void()> call);

  // Copies `from` to `to` as a power loss would leave it: of each file what was synced. Other
  // threads neither make, rename nor delete files meanwhile.
  void CopySynced(const std::filesystem::path& from, const std::filesystem::path& to) const;

  rocksdb::IOStatus NewWritableFile(const std::string& name, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* file,
                                    rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus RenameFile(const std::string& from, const std::string& to,
                               const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus LinkFile(const std::string& from, const std::string& to,
                             const rocksdb::IOOptions& options,
                             rocksdb::IODebugContext* debug) override;

  rocksdb::IOStatus DeleteFile(const std::string& name, const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* debug) override;

  // For the files of this file system.
  rocksdb::IOStatus TakeRoom();
  void Wrote(const std::string& name, uint64_t bytes);
  void Synced(const std::string& name);

 private:
  struct Extent {
    uint64_t written = 0;
    uint64_t synced = 0;
  };

  mutable absl::Mutex changes_;  // Held by a copy, and shared by what it must not see half of.
  mutable absl::Mutex mutex_;
  bool limited_ ABSL_GUARDED_BY(mutex_) = false;
  bool was_full_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t appends_left_ ABSL_GUARDED_BY(mutex_) = 0;
  std::function<void()> on_sync_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Extent> files_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace oxbow::buffer
