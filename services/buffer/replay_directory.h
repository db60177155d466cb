// SPDX-License-Identifier: Apache-2.0
// The directory of a replay store: which database is live, and the checkpoints by name.
//
//   LOCK                      held while a process uses the directory
//   CURRENT                   the name of the live database, replaced atomically
//   live-000001/              a database; a crash may leave others beside the live one
//   checkpoints/NAME.000004/  a database made of hard links; a higher number is younger
//   aside-000001/             a database whose content left the store by a Restore without
//   checkpoint
//
// Nothing here knows what is inside a database. Not thread-safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/descriptor.h"

namespace oxbow::buffer {

inline constexpr size_t kAsidesMax = 4;

// Makes a hard link at `to`, or a synced copy where `link` says that it cannot.
using Link = void (*)(const std::filesystem::path& from, const std::filesystem::path& to,
                      std::error_code& error);
absl::Status LinkOrCopy(const std::filesystem::path& from, const std::filesystem::path& to,
                        Link link = std::filesystem::create_hard_link);

class ReplayDirectory {
 public:
  // Makes the directory if it is not there and locks it. kUnavailable if another process holds it.
  // On a file system without locks it goes on with a warning.
  static absl::StatusOr<std::unique_ptr<ReplayDirectory>> Open(const std::filesystem::path& path);

  // Opens it only for FindLive and FindCheckpoint. Writes nothing; while it is open no
  // replay_buffer can start on it. kNotFound if it is no replay store, kUnavailable while a process
  // holds it.
  static absl::StatusOr<std::unique_ptr<ReplayDirectory>> OpenForReading(
      const std::filesystem::path& path);
  ~ReplayDirectory();

  struct Live {
    std::filesystem::path path;
    bool settled = false;  // CURRENT names it: then it must be whole.
  };
  // kDataLoss if CURRENT is unreadable, or is missing with several databases to choose from.
  absl::StatusOr<Live> FindLive() const;

  // A path for the next live database; nothing is there.
  std::filesystem::path NextLive() const;

  // Makes `live` the one that the next start uses. The switch is atomic and durable.
  absl::Status Settle(const std::filesystem::path& live);

  // Deletes leftovers: databases other than `live`, unfinished or superseded checkpoints.
  void Sweep(const std::filesystem::path& live) const;

  // A path for a new checkpoint; nothing is there. Letters, digits, '-' and '_' make a name, at
  // most 100 of them; otherwise kInvalidArgument.
  absl::StatusOr<std::filesystem::path> NextCheckpoint(const std::string& name) const;

  // A path for a copy of content that is about to leave; nothing is there. Nothing if there are
  // kAsidesMax: the oldest ones are worth more than those of a learner that starts over and over.
  std::optional<std::filesystem::path> NextAside() const;

  // Turns all checkpoints into copies set aside: they are of another run.
  absl::Status SetCheckpointsAside() const;

  // Makes the checkpoint at `path` durable, forgets older ones of its name, and keeps the youngest
  // `keep` names (0: all). Then deletes what was set aside.
  absl::Status Publish(const std::filesystem::path& path, uint64_t keep) const;

  // kNotFound if there is none of this name.
  absl::StatusOr<std::filesystem::path> FindCheckpoint(const std::string& name) const;

  // Copies the database at `from` to `to`: immutable files as hard links where the file system has
  // them, the others byte by byte. On failure nothing is left at `to`.
  absl::Status Clone(const std::filesystem::path& from, const std::filesystem::path& to) const;

 private:
  struct Numbered {
    uint64_t number = 0;
    std::string name;
    std::filesystem::path path;
  };
  ReplayDirectory(std::filesystem::path path, Descriptor lock);
  static absl::StatusOr<std::unique_ptr<ReplayDirectory>> Locked(const std::filesystem::path& path,
                                                                 Descriptor lock, int operation,
                                                                 const char* held);
  std::vector<Numbered> List() const;    // Checkpoints, oldest first; superseded ones included.
  std::vector<Numbered> Asides() const;  // Oldest first.

  const std::filesystem::path path_;
  const Descriptor lock_;  // The file LOCK.
};

}  // namespace oxbow::buffer
