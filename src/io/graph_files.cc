// SPDX-License-Identifier: Apache-2.0
#include "io/graph_files.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status_macros.h"

namespace oxbow::io {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBytesMax = size_t{64} << 20;  // Unpacked.
constexpr int kGzipWindow = 15 + 16;            // The largest window, with gzip's header.

bool IsGzip(const std::string& bytes) {
  return bytes.size() > 2 && bytes[0] == '\x1f' && bytes[1] == '\x8b';
}

absl::StatusOr<std::string> Unpacked(std::string packed) {
  z_stream stream = {};
  if (inflateInit2(&stream, kGzipWindow) != Z_OK) return absl::InternalError("zlib has no memory");
  const auto end = [](z_stream* open) { inflateEnd(open); };
  const std::unique_ptr<z_stream, decltype(end)> close(&stream, end);
  stream.next_in = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_in = static_cast<uInt>(packed.size());
  std::string plain;
  std::array<char, 1 << 16> piece;
  for (int code = Z_OK; code != Z_STREAM_END;) {
    stream.next_out = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_out = static_cast<uInt>(piece.size());
    code = inflate(&stream, Z_NO_FLUSH);
    if (code != Z_OK && code != Z_STREAM_END) return absl::DataLossError("damaged gzip file");
    plain.append(piece.data(), piece.size() - stream.avail_out);
    if (plain.size() > kBytesMax) {
      return absl::FailedPreconditionError(
          absl::StrCat("a graph of more than ", kBytesMax, " bytes"));
    }
  }
  return plain;
}

std::vector<fs::path> ShippedDirectories() {
  std::vector<fs::path> directories;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) {
    directories.push_back(program.parent_path().parent_path() / "share/oxbow/graphs");
    directories.push_back(program.parent_path().parent_path() / "models/graphs");  // In images.
    // From build/{preset}/bin.
    directories.push_back(program.parent_path() / "../../../models/graphs");
  }
  directories.emplace_back("models/graphs");
  return directories;
}

}  // namespace

absl::StatusOr<std::string> ReadGraphFile(const fs::path& path) {
  OXBOW_ASSIGN_OR_RETURN(std::string bytes, ReadFile(path, kBytesMax));
  if (!IsGzip(bytes)) return bytes;
  absl::StatusOr<std::string> plain = Unpacked(std::move(bytes));
  if (!plain.ok()) return Annotate(plain.status(), path.string());
  return plain;
}

GraphFiles FindGraphFiles(const DiffusersComponent& transformer) {
  GraphFiles found;
  std::error_code ignored;
  for (const char* name : {"graph.json", "graph.json.gz"}) {
    if (fs::exists(transformer.directory / name, ignored)) {
      found.own = transformer.directory / name;
      return found;
    }
  }
  const std::string prefix = transformer.class_name + "-";
  for (const fs::path& directory : ShippedDirectories()) {
    for (const auto& entry : fs::directory_iterator(directory, ignored)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with(prefix) && name.ends_with(".json.gz")) {
        found.shipped.push_back(entry.path());
      }
    }
    if (!found.shipped.empty()) break;
  }
  std::sort(found.shipped.begin(), found.shipped.end());
  return found;
}

}  // namespace oxbow::io
