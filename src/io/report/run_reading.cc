// SPDX-License-Identifier: Apache-2.0
#include "io/report/run_reading.h"

#include <sys/stat.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace oxbow::io {

absl::Status RunReading::Update() {
  sheets_ = SheetsOf(run_dir_, &cache_);
  absl::Status status = UpdateHistory();
  if (!status.ok()) {
    history_ = History();
    bytes_ = 0;
  }
  return status;
}

absl::Status RunReading::UpdateHistory() {
  const std::filesystem::path path = run_dir_ / kMetricsFile;
  struct stat now {};
  std::ifstream file(path, std::ios::binary);
  if (!file || stat(path.c_str(), &now) != 0) {
    return absl::NotFoundError(absl::StrCat("cannot open: ", path.string()));
  }
  const auto size = static_cast<uint64_t>(now.st_size);
  if (now.st_ino != inode_ || size < bytes_) {
    history_ = History();
    bytes_ = 0;
    inode_ = now.st_ino;
  }
  std::string content(size - bytes_, '\0');
  file.seekg(static_cast<std::streamoff>(bytes_));
  file.read(content.data(), static_cast<std::streamsize>(content.size()));
  content.resize(static_cast<size_t>(file.gcount()));
  content.resize(content.rfind('\n') + 1);  // 0 if no line is whole.
  const auto lines = ParseMetrics(content);
  if (!lines.ok()) return Annotate(lines.status(), path.string());
  history_.Add(*lines);
  bytes_ += content.size();
  return absl::OkStatus();
}

}  // namespace oxbow::io
