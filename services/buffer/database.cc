// SPDX-License-Identifier: Apache-2.0
#include "services/buffer/database.h"

#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/file_system.h>
#include <rocksdb/slice_transform.h>
#include <rocksdb/statistics.h>
#include <rocksdb/table.h>
#include <rocksdb/utilities/checkpoint.h>

#include <fstream>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/checksum.h"
#include "base/status_macros.h"
#include "services/buffer/replay_records.h"

namespace oxbow::buffer {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr size_t kBlock = 32768;
constexpr size_t kHeader = 7;

uint32_t LittleEndian(std::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

// Whether the record at the front has a checksum that fits fewer bytes than it says it has.
bool HasRottenLength(std::string_view record) {
  const uint32_t stored = LittleEndian(record.substr(0, 4));
  uint32_t crc = Crc32c(record.substr(6, 1));
  if (MaskCrc32c(crc) == stored) return true;
  for (size_t i = kHeader; i < record.size(); ++i) {
    crc = ExtendCrc32c(crc, record.substr(i, 1));
    if (MaskCrc32c(crc) == stored) return true;
  }
  return false;
}

absl::Status CheckLastBlock(const fs::path& log, std::string_view block) {
  while (block.size() >= kHeader) {
    const size_t length = LittleEndian(block.substr(4, 2));
    if (kHeader + length > block.size()) {
      if (!HasRottenLength(block)) return absl::OkStatus();
      return absl::DataLossError(absl::StrCat(
          "replay store is damaged: a record at the end of the log has rotted: ", log.string()));
    }
    block.remove_prefix(kHeader + length);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status FromRocks(const rocksdb::Status& status, const std::filesystem::path& path) {
  if (status.ok()) return absl::OkStatus();
  if (status.IsNoSpace()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("disk full, free some space: ", path.string(), ": ", status.ToString()));
  }
  const std::string what = absl::StrCat(path.string(), ": ", status.ToString());
  if (status.IsNotFound()) return absl::NotFoundError(what);
  if (status.IsCorruption() || status.IsPathNotFound() || status.IsInvalidArgument()) {
    return absl::DataLossError(absl::StrCat("replay store is damaged: ", what));
  }
  if (status.IsIOError()) return absl::UnavailableError(absl::StrCat("disk error: ", what));
  return absl::InternalError(what);
}

absl::Status CheckLogTails(const fs::path& database) {
  std::error_code none;
  for (const auto& file : fs::directory_iterator(database, none)) {
    if (file.path().extension() != ".log") continue;
    const uintmax_t size = file.file_size(none);
    if (none || size == 0) continue;
    std::ifstream in(file.path(), std::ios::binary);
    in.seekg(static_cast<std::streamoff>((size - 1) / kBlock * kBlock));
    const std::string block((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    OXBOW_RETURN_IF_ERROR(CheckLastBlock(file.path(), block));
  }
  return absl::OkStatus();
}

namespace {

// The lock of the directory (replay_directory.h) keeps others out. RocksDB's own is another kind of
// lock of the kernel, without which a database could not be opened on some file systems.
class WithoutLock final : public rocksdb::FileSystemWrapper {
 public:
  using FileSystemWrapper::FileSystemWrapper;
  const char* Name() const override { return "oxbow_without_lock"; }
  rocksdb::IOStatus LockFile(const std::string&, const rocksdb::IOOptions&,
                             rocksdb::FileLock** lock, rocksdb::IODebugContext*) override {
    *lock = new rocksdb::FileLock;  // RocksDB's until UnlockFile.
    return rocksdb::IOStatus::OK();
  }
  rocksdb::IOStatus UnlockFile(rocksdb::FileLock* lock, const rocksdb::IOOptions&,
                               rocksdb::IODebugContext*) override {
    delete lock;
    return rocksdb::IOStatus::OK();
  }
};

std::unique_ptr<rocksdb::Env> EnvironmentWithoutLock(rocksdb::Env* environment) {
  if (environment == nullptr) environment = rocksdb::Env::Default();
  return rocksdb::NewCompositeEnv(std::make_shared<WithoutLock>(environment->GetFileSystem()));
}

rocksdb::DBOptions Options(bool create, rocksdb::Env* environment) {
  rocksdb::DBOptions options;
  if (environment != nullptr) options.env = environment;
  options.create_if_missing = create;
  options.create_missing_column_families = create;
  options.paranoid_checks = true;
  // A log may end in a record that was being written (CheckLogTails); damage anywhere else is
  // reported, not dropped.
  options.wal_recovery_mode = rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords;
  options.db_write_buffer_size = 16 * kMiB;
  options.max_total_wal_size = 64 * kMiB;
  options.max_open_files = 256;
  options.max_background_jobs = 2;
  options.info_log_level = rocksdb::InfoLogLevel::WARN_LEVEL;
  options.keep_log_file_num = 2;
  options.max_log_file_size = kMiB;
  return options;
}

std::vector<rocksdb::ColumnFamilyDescriptor> Families(bool compacts) {
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = rocksdb::NewLRUCache(16 * kMiB);
  table.cache_index_and_filter_blocks = true;
  rocksdb::ColumnFamilyOptions index;
  index.compression = rocksdb::kNoCompression;  // Ids and noise: nothing to gain.
  index.write_buffer_size = 8 * kMiB;
  index.disable_auto_compactions = !compacts;
  index.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  rocksdb::ColumnFamilyOptions payload = index;
  // Ids often count up: then a record is put behind the last one of its letter, without a search.
  index.memtable_insert_with_hint_prefix_extractor.reset(rocksdb::NewFixedPrefixTransform(1));
  payload.enable_blob_files = true;
  payload.min_blob_size = 1024;
  payload.blob_file_size = 64 * kMiB;
  payload.enable_blob_garbage_collection = true;
  payload.blob_garbage_collection_age_cutoff = 0.5;
  payload.blob_garbage_collection_force_threshold = 0.5;
  return {{rocksdb::kDefaultColumnFamilyName, index}, {"payload", payload}};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Database>> Database::Open(const std::filesystem::path& path,
                                                         bool create, rocksdb::Env* environment,
                                                         bool compacts) {
  OXBOW_RETURN_IF_ERROR(CheckLogTails(path));
  std::vector<rocksdb::ColumnFamilyHandle*> families;
  rocksdb::DB* db = nullptr;
  std::unique_ptr<rocksdb::Env> unlocked = EnvironmentWithoutLock(environment);
  rocksdb::DBOptions options = Options(create, unlocked.get());
  options.statistics = rocksdb::CreateDBStatistics();
  options.statistics->set_stats_level(rocksdb::StatsLevel::kExceptHistogramOrTimers);
  const rocksdb::Status status =
      rocksdb::DB::Open(options, path.string(), Families(compacts), &families, &db);
  if (!status.ok()) return FromRocks(status, path);
  return std::unique_ptr<Database>(new Database(path, environment, std::move(unlocked),
                                                options.statistics, db, families[0], families[1]));
}

absl::StatusOr<std::unique_ptr<Database>> Database::OpenReadOnly(
    const std::filesystem::path& path) {
  OXBOW_RETURN_IF_ERROR(CheckLogTails(path));
  std::vector<rocksdb::ColumnFamilyHandle*> families;
  rocksdb::DB* db = nullptr;
  rocksdb::DBOptions options = Options(/*create=*/false, nullptr);
  options.statistics = rocksdb::CreateDBStatistics();
  const rocksdb::Status status = rocksdb::DB::OpenForReadOnly(
      options, path.string(), Families(/*compacts=*/false), &families, &db);
  if (!status.ok()) return FromRocks(status, path);
  return std::unique_ptr<Database>(
      new Database(path, nullptr, nullptr, options.statistics, db, families[0], families[1]));
}

Database::Database(std::filesystem::path path, rocksdb::Env* environment,
                   std::unique_ptr<rocksdb::Env> unlocked,
                   std::shared_ptr<rocksdb::Statistics> statistics, rocksdb::DB* db,
                   rocksdb::ColumnFamilyHandle* index, rocksdb::ColumnFamilyHandle* payload)
    : path_(std::move(path)),
      environment_(environment),
      unlocked_(std::move(unlocked)),
      segments_(std::make_unique<SegmentReader>(path_, environment)),
      statistics_(std::move(statistics)),
      db_(db),
      index_(index),
      payload_(payload) {}

Database::~Database() {
  db_->DestroyColumnFamilyHandle(index_);
  db_->DestroyColumnFamilyHandle(payload_);
  db_->Close();
}

absl::Status Database::ProbeRoom(const std::filesystem::path& path, rocksdb::Env* environment) {
  rocksdb::Env* const env = environment != nullptr ? environment : rocksdb::Env::Default();
  const std::string probe = path.string() + ".probe";
  const rocksdb::Status status =
      rocksdb::WriteStringToFile(env, std::string(kMiB, '\0'), probe, /*should_sync=*/true);
  env->DeleteFile(probe).PermitUncheckedError();
  return FromRocks(status, path);
}

absl::Status Database::Write(rocksdb::WriteBatch& batch, bool sync) {
  rocksdb::WriteOptions options;
  options.sync = sync;
  return FromRocks(db_->Write(options, &batch), path_);
}

absl::Status Database::Resume() { return FromRocks(db_->Resume(), path_); }

absl::Status Database::CompactAll() {
  if (const rocksdb::Status s =
          db_->CompactRange(rocksdb::CompactRangeOptions(), payload_, nullptr, nullptr);
      !s.ok()) {
    return FromRocks(s, path_);
  }
  return FromRocks(db_->EnableAutoCompaction({index_, payload_}), path_);
}

absl::StatusOr<std::string> Database::Get(rocksdb::ColumnFamilyHandle* family,
                                          const std::string& key) const {
  std::string value;
  const rocksdb::Status status = db_->Get(rocksdb::ReadOptions(), family, key, &value);
  if (!status.ok()) return FromRocks(status, path_);
  return value;
}

absl::StatusOr<std::string> Database::Part(EntryId entry, rocksdb::ColumnFamilyHandle* family,
                                           const std::string& key) const {
  absl::StatusOr<std::string> part = Get(family, key);
  if (!absl::IsNotFound(part.status())) return part;
  return absl::DataLossError(
      absl::StrCat("replay store is damaged: a part of entry ", entry.value, " is missing"));
}

absl::StatusOr<std::string> Database::Header(EntryId entry) const {
  return Part(entry, index_, HeaderKey(entry));
}

absl::StatusOr<std::string> Database::Conditioning(const Entry& record) const {
  if (record.location.segment != 0) return segments_->Conditioning(record);
  if (record.conditioning_bytes == 0) return "";  // Older versions wrote an empty part.
  return Part(record.id, payload_, PartKey(record.id, kConditioningPart));
}

absl::StatusOr<LatentPieces> Database::Pieces(const Entry& record, uint32_t first,
                                              uint32_t count) const {
  if (record.location.segment != 0) return segments_->Latents(record, first, count);
  const auto read = std::make_shared<std::vector<std::string>>();
  for (uint32_t i = first; i < first + count; ++i) {
    OXBOW_ASSIGN_OR_RETURN(read->emplace_back(), Part(record.id, payload_, PartKey(record.id, i)));
  }
  return LatentPieces{.pieces = {read->begin(), read->end()}, .memory = read};
}

absl::StatusOr<std::string> Database::Latents(const Entry& record, uint32_t first,
                                              uint32_t count) const {
  OXBOW_ASSIGN_OR_RETURN(const LatentPieces pieces, Pieces(record, first, count));
  return pieces.Joined();
}

absl::Status Database::ForEach(
    char letter,
    const std::function<absl::Status(const std::string&, const std::string&)>& visit) const {
  const std::unique_ptr<rocksdb::Iterator> at(db_->NewIterator(rocksdb::ReadOptions(), index_));
  const std::string prefix(1, letter);
  for (at->Seek(prefix); at->Valid() && at->key().starts_with(prefix); at->Next()) {
    if (absl::Status s = visit(at->key().ToString(), at->value().ToString()); !s.ok()) return s;
  }
  return FromRocks(at->status(), path_);
}

absl::StatusOr<std::optional<std::pair<std::string, std::string>>> Database::After(
    char letter, const std::string& key) const {
  const std::unique_ptr<rocksdb::Iterator> at(db_->NewIterator(rocksdb::ReadOptions(), index_));
  // The next string in byte order.
  const std::string from = key.empty() ? std::string(1, letter) : key + std::string(1, '\0');
  at->Seek(from);
  if (at->Valid() && at->key().starts_with(std::string(1, letter))) {
    return std::optional(std::pair(at->key().ToString(), at->value().ToString()));
  }
  if (!at->status().ok()) return FromRocks(at->status(), path_);
  return std::optional<std::pair<std::string, std::string>>();
}

absl::Status Database::CopyTo(const std::filesystem::path& path) {
  rocksdb::Checkpoint* made = nullptr;
  if (const rocksdb::Status s = rocksdb::Checkpoint::Create(db_.get(), &made); !s.ok()) {
    return FromRocks(s, path_);
  }
  const std::unique_ptr<rocksdb::Checkpoint> checkpoint(made);
  const fs::path staged = path.string() + ".tmp";
  const auto copy = [&]() -> absl::Status {
    OXBOW_RETURN_IF_ERROR(FromRocks(checkpoint->CreateCheckpoint(staged.string()), path));
    OXBOW_RETURN_IF_ERROR(segments_->LinkAll(staged));
    rocksdb::Env* const environment = db_->GetEnv();
    OXBOW_RETURN_IF_ERROR(FromRocks(environment->RenameFile(staged.string(), path.string()), path));
    return SyncNames(path.parent_path(), environment);
  };
  const absl::Status status = copy();
  std::error_code ignored;
  if (!status.ok()) fs::remove_all(staged, ignored);
  return status;
}

uint64_t Database::disk_bytes() const {
  uint64_t total = 0;
  for (rocksdb::ColumnFamilyHandle* family : {index_, payload_}) {
    for (const char* property : {"rocksdb.total-sst-files-size", "rocksdb.total-blob-file-size"}) {
      uint64_t bytes = 0;
      if (db_->GetIntProperty(family, property, &bytes)) total += bytes;
    }
  }
  return total;
}

Database::Pressure Database::pressure() const {
  Pressure pressure;
  uint64_t stopped = 0;
  pressure.writes_stopped =
      db_->GetIntProperty(rocksdb::DB::Properties::kIsWriteStopped, &stopped) && stopped != 0;
  for (rocksdb::ColumnFamilyHandle* family : {index_, payload_}) {
    uint64_t bytes = 0;
    if (db_->GetIntProperty(family, rocksdb::DB::Properties::kEstimatePendingCompactionBytes,
                            &bytes)) {
      pressure.compaction_pending_bytes += bytes;
    }
  }
  pressure.stall_seconds =
      1e-6 * static_cast<double>(statistics_->getTickerCount(rocksdb::STALL_MICROS));
  return pressure;
}

}  // namespace oxbow::buffer
