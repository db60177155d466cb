// SPDX-License-Identifier: Apache-2.0
// Files: whole, in pieces, appended to, and by their lines from the end. Whole ones are written
// such that a reader or a crash sees the old content or the new one, never a part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/descriptor.h"

namespace oxbow {

// A file written in pieces. A reader or a crash sees it complete or not at all.
//
// The temporary file is PATH.tmp.DIGITS, 16 random hexadecimal ones, and is made by one writer for
// itself: processes of other hosts and containers may write the same file at the same time, and
// the last one to commit has written it. A process that is killed leaves its temporary file behind.
class AtomicFile {
 public:
  // Makes a temporary file beside `path`.
  static absl::StatusOr<AtomicFile> Create(const std::filesystem::path& path);

  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();  // Without Commit: removes the temporary file; `path` is unchanged.

  // kResourceExhausted when the disk is full.
  absl::Status Append(std::string_view bytes);

  // Fsyncs, renames to `path` and fsyncs the directory. Call it once.
  absl::Status Commit();

 private:
  AtomicFile(Descriptor descriptor, std::string temporary, std::filesystem::path path);

  Descriptor descriptor_;
  std::string temporary_;  // Empty after the file was committed or removed.
  std::filesystem::path path_;
};

// A name beside `path` that nobody else has, for what is renamed to `path` once it is whole.
std::filesystem::path TemporaryOf(const std::filesystem::path& path);

// How long a temporary file that nobody writes to is left alone: clocks of hosts differ.
inline constexpr absl::Duration kTemporaryKept = absl::Hours(24);

// Removes temporary files in `directory` that nobody has written to for kTemporaryKept.
void SweepTemporaries(const std::filesystem::path& directory);

// Gives a file's bytes, however many, to `take`, in order. kNotFound if there is none; the first
// error of `take` ends it and is returned. A disk that cannot be read is an error here, where a
// memory map would end the process.
absl::Status ReadInPieces(const std::filesystem::path& path,
                          const std::function<absl::Status(std::string_view piece)>& take);

// Whether this is the name of one file or folder that is not hidden: not empty, without `/` and
// control characters, and without a dot at its beginning.
bool IsPlainName(std::string_view name);

// kNotFound if the file does not exist; kInvalidArgument if it is larger than `bytes_max`.
absl::StatusOr<std::string> ReadFile(const std::filesystem::path& path,
                                     uint64_t bytes_max = uint64_t{4} << 30);

// Writes to a temporary file beside `path`, fsyncs, renames and fsyncs the directory. On failure
// `path` is untouched and the temporary file is gone. kResourceExhausted when the disk is full.
absl::Status WriteFileAtomically(const std::filesystem::path& path, std::string_view content);

// Looks before long work whether a file can be written at `path`, or files into the folder `path`,
// which may have to be made. kInvalidArgument names the path and why not; errors that may pass
// stay.
absl::Status CheckPlace(const std::filesystem::path& path, bool folder = false);

// Creates `directory` and up to so many above it where they are missing, and makes the new names
// durable. kNotFound if one above these is missing.
absl::Status MakeDirectories(const std::filesystem::path& directory, size_t above = SIZE_MAX);

// Appends a line and its newline with one write, fsyncing when `sync` is set.
class AppendFile {
 public:
  // Creates the file if it is missing; its name is durable.
  static absl::StatusOr<AppendFile> Open(const std::filesystem::path& path);
  // After an error nothing of `bytes` stays: it is cut off at once, or before anything else is
  // appended. One that writes.
  absl::Status Append(std::string_view bytes, bool sync);

 private:
  AppendFile(Descriptor descriptor, std::string path)
      : descriptor_(std::move(descriptor)), path_(std::move(path)) {}
  Descriptor descriptor_;
  std::string path_;
  std::optional<int64_t> torn_;  // Where something begins that was not written to its end.
};

struct FileLine {
  std::string text;    // Without its newline.
  uint64_t begin = 0;  // Its first byte in the file.
  uint64_t end = 0;    // The first byte behind it and its newline.
  bool whole = true;   // It has its newline. Only the last line of a file may have none.
};

// The lines of a file, the last one first. It holds one line in memory, whatever the file's size.
class LinesFromEnd {
 public:
  // kNotFound if the file does not exist.
  static absl::StatusOr<LinesFromEnd> Open(const std::filesystem::path& path);

  // The line before the one returned last; absent before the first line of the file. kDataLoss if a
  // line has more than 1 GiB.
  absl::StatusOr<std::optional<FileLine>> Next();

 private:
  LinesFromEnd(Descriptor file, std::string path, uint64_t size)
      : file_(std::move(file)), path_(std::move(path)), begin_(size) {}

  // Puts the block before `begin_` in front of `held_`.
  absl::Status ReadBlockBefore();

  Descriptor file_;
  std::string path_;
  std::string held_;  // Bytes from `begin_` on that were not returned yet.
  uint64_t begin_;
};

// Makes the file `size` bytes long.
absl::Status CutFile(const std::filesystem::path& path, uint64_t size);

}  // namespace oxbow
