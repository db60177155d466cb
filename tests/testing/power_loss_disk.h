// SPDX-License-Identifier: Apache-2.0
// The files of a directory as a power loss would leave them, at any moment.
//
// A program that links this calls it after each open, write, rename, fsync and the like. What was
// fsynced is there after a power loss. Of the rest the file system may keep anything: names without
// their content, content without names, half of a write, or zeros where bytes were not written yet.
//
// One disk at a time. The calls of the thread that made it are followed: what other threads do is
// seen with its next one, so they may do nothing that counts.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace oxbow::testing {

class PowerLossDisk {
 public:
  // The rest of what was not fsynced.
  enum class Left {
    kNothing,        // Neither names nor bytes.
    kNames,          // All names, no byte: a rename that overtakes its file.
    kNamesAndHalf,   // All names, half of the bytes.
    kNamesAndZeros,  // All names and sizes; the first half of the bytes are zeros.
    kBytes,          // All bytes, no names.
    kAll,            // As if it had been fsynced.
    kAnything,       // For each directory and file something else, by a seed.
  };

  // Follows `root`, which exists and is durable with what is in it.
  explicit PowerLossDisk(std::filesystem::path root);
  ~PowerLossDisk();
  PowerLossDisk(const PowerLossDisk&) = delete;
  PowerLossDisk& operator=(const PowerLossDisk&) = delete;

  // Calls `call` before each fsync and after each change of the tree. Null: no more.
  void OnChange(std::function<void()> call) { call_ = std::move(call); }

  // Writes what the power loss leaves to `target`, outside the root; deletes what is there.
  void CopyTo(const std::filesystem::path& target, Left left, uint64_t seed = 0) const;

  // For the system calls of this file.
  std::thread::id thread() const { return thread_; }
  void Changed();
  void Syncs(int descriptor);
  void Synced(int descriptor);

 private:
  using Listing = std::map<std::string, ino_t>;
  // Since the last fsync; the first is durable.
  struct Node {
    bool directory = false;
    std::vector<Listing> listings;
    std::vector<std::string> contents;
    int held = -1;  // Keeps the number from being used again.
  };

  ino_t Look(const std::filesystem::path& path);
  void CopyNode(ino_t number, const std::filesystem::path& target, Left left, uint64_t seed) const;

  const std::filesystem::path root_;
  const std::thread::id thread_ = std::this_thread::get_id();
  ino_t top_ = 0;
  bool grew_ = false;  // While looking: something is not as it was.
  std::map<ino_t, Node> nodes_;
  std::function<void()> call_;
};

}  // namespace oxbow::testing
