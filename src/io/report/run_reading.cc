// SPDX-License-Identifier: Apache-2.0
#include "io/report/run_reading.h"

#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace oxbow::io {

absl::Status RunReading::Update() {
  sheets_ = SheetsOf(run_dir_, &cache_);
  if (cache_.size() > 4 * kSheetsMax) cache_.clear();  // Others are chosen as a run grows.
  return UpdateHistory();
}

absl::Status RunReading::UpdateHistory() {
  absl::Status status = TakeNewLines();
  if (!status.ok()) {
    history_ = History();
    bytes_ = 0;
  }
  return status;
}

absl::Status RunReading::TakeNewLines() {
  const std::filesystem::path path = run_dir_ / kMetricsFile;
  struct stat now {};
  if (stat(path.c_str(), &now) != 0) {
    return absl::NotFoundError(absl::StrCat("cannot open: ", path.string()));
  }
  const auto size = static_cast<uint64_t>(now.st_size);
  if (now.st_ino != inode_ || size < bytes_) {
    history_ = History();
    bytes_ = 0;
    inode_ = now.st_ino;
  }
  return ReadMetricsFrom(path, bytes_, [this](const auto& line) { history_.Add(line); });
}

}  // namespace oxbow::io
