// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/power_loss_disk.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace oxbow::testing {
namespace {

namespace fs = std::filesystem;

std::atomic<PowerLossDisk*> followed = nullptr;

// The disk, unless the call comes from its own work.
thread_local bool inside = false;

template <typename Call>
void Follow(Call call) {
  PowerLossDisk* const disk = followed;
  if (disk == nullptr || inside || disk->thread() != std::this_thread::get_id()) return;
  const int error = errno;
  inside = true;
  call(*disk);
  inside = false;
  errno = error;
}

// The function that this file hides.
template <typename Function>
Function* Real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

template <typename Result>
Result AfterwardsLook(Result result) {
  Follow([](PowerLossDisk& disk) { disk.Changed(); });
  return result;
}

int SyncWith(const char* name, int descriptor) {
  Follow([=](PowerLossDisk& disk) { disk.Syncs(descriptor); });
  const int result = Real<int(int)>(name)(descriptor);
  if (result == 0) Follow([=](PowerLossDisk& disk) { disk.Synced(descriptor); });
  return result;
}

std::string ContentOf(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

uint64_t Mixed(uint64_t seed, uint64_t with) {
  uint64_t z = seed * 0x9e3779b97f4a7c15 + with + 1;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// `written`, where what follows its common beginning with `durable` is cut in half, or begins with
// zeros.
std::string Torn(const std::string& durable, std::string written, bool zeros) {
  const size_t common = static_cast<size_t>(
      std::mismatch(durable.begin(), durable.end(), written.begin(), written.end()).first -
      durable.begin());
  const size_t half = common + (written.size() - common) / 2;
  if (zeros) {
    std::fill(written.begin() + static_cast<std::ptrdiff_t>(common),
              written.begin() + static_cast<std::ptrdiff_t>(half), '\0');
  } else {
    written.resize(half);
  }
  return written;
}

std::string ContentLeft(const std::vector<std::string>& contents, PowerLossDisk::Left left,
                        uint64_t random) {
  using Left = PowerLossDisk::Left;
  const std::string& durable = contents.front();
  switch (left) {
    case Left::kNothing:
    case Left::kNames:
      return durable;
    case Left::kNamesAndHalf:
    case Left::kNamesAndZeros:
      return Torn(durable, contents.back(), left == Left::kNamesAndZeros);
    case Left::kBytes:
    case Left::kAll:
      return contents.back();
    case Left::kAnything:
      break;
  }
  const std::string& some = contents[random / 4 % contents.size()];
  return random % 4 < 2 ? some : Torn(durable, some, random % 4 == 2);
}

size_t ListingLeft(size_t listings, PowerLossDisk::Left left, uint64_t random) {
  using Left = PowerLossDisk::Left;
  if (left == Left::kNothing || left == Left::kBytes) return 0;
  return left == Left::kAnything ? random % listings : listings - 1;
}

}  // namespace

PowerLossDisk::PowerLossDisk(fs::path root) : root_(std::move(root)) {
  inside = true;
  top_ = Look(root_);
  inside = false;
  for (auto& [number, node] : nodes_) {
    if (node.directory) node.listings = {node.listings.back()};
    if (!node.directory) node.contents = {node.contents.back()};
  }
  OXBOW_CHECK(followed == nullptr) << "one disk at a time";
  followed = this;
}

PowerLossDisk::~PowerLossDisk() {
  followed = nullptr;
  for (const auto& [number, node] : nodes_) ::close(node.held);
}

// Records the tree below `path` where it is not as it was. Returns its number.
ino_t PowerLossDisk::Look(const fs::path& path) {
  struct stat info {};
  OXBOW_CHECK(::stat(path.c_str(), &info) == 0) << path;
  const auto [at, is_new] = nodes_.try_emplace(info.st_ino);
  Node& node = at->second;
  if (is_new) {
    node.directory = S_ISDIR(info.st_mode);
    node.held = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    node.listings.emplace_back();
    node.contents.emplace_back();
  }
  if (!node.directory) {
    std::string content = ContentOf(path);
    if (content == node.contents.back()) return info.st_ino;
    node.contents.push_back(std::move(content));
  } else {
    Listing listing;
    for (const auto& entry : fs::directory_iterator(path)) {
      listing[entry.path().filename().string()] = Look(entry.path());
    }
    if (listing == node.listings.back()) return info.st_ino;
    node.listings.push_back(std::move(listing));
  }
  grew_ = true;
  return info.st_ino;
}

void PowerLossDisk::Changed() {
  grew_ = false;
  Look(root_);
  if (grew_ && call_) call_();
}

// Writes in ways that are not followed are there before the descriptor is synced.
void PowerLossDisk::Syncs(int descriptor) {
  Look(root_);
  struct stat info {};
  ::fstat(descriptor, &info);
  if (nodes_.contains(info.st_ino) && call_) call_();
}

void PowerLossDisk::Synced(int descriptor) {
  struct stat info {};
  ::fstat(descriptor, &info);
  const auto at = nodes_.find(info.st_ino);
  if (at == nodes_.end()) return;
  at->second.listings = {at->second.listings.back()};
  at->second.contents = {at->second.contents.back()};
}

void PowerLossDisk::CopyTo(const fs::path& target, Left left, uint64_t seed) const {
  fs::remove_all(target);
  CopyNode(top_, target, left, seed);
}

void PowerLossDisk::CopyNode(ino_t number, const fs::path& target, Left left, uint64_t seed) const {
  const Node& node = nodes_.at(number);
  const uint64_t random = Mixed(seed, number);
  if (!node.directory) {
    std::ofstream(target, std::ios::binary) << ContentLeft(node.contents, left, random);
    return;
  }
  fs::create_directory(target);
  const size_t kept = ListingLeft(node.listings.size(), left, random);
  for (const auto& [name, child] : node.listings[kept]) {
    CopyNode(child, target / name, left, seed);
  }
}

}  // namespace oxbow::testing

// These hide the functions of the C library, also from the C++ library.

using oxbow::testing::AfterwardsLook;
using oxbow::testing::Real;

extern "C" int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return AfterwardsLook(Real<int(const char*, int, ...)>("open")(path, flags, mode));
}

extern "C" ssize_t write(int descriptor, const void* bytes, size_t count) {
  return AfterwardsLook(Real<decltype(write)>("write")(descriptor, bytes, count));
}

extern "C" int fsync(int descriptor) { return oxbow::testing::SyncWith("fsync", descriptor); }

extern "C" int fdatasync(int descriptor) {
  return oxbow::testing::SyncWith("fdatasync", descriptor);
}

extern "C" int rename(const char* from, const char* to) noexcept {
  return AfterwardsLook(Real<int(const char*, const char*)>("rename")(from, to));
}

extern "C" int renameat2(int from_at, const char* from, int to_at, const char* to,
                         unsigned flags) noexcept {
  return AfterwardsLook(Real<int(int, const char*, int, const char*, unsigned)>("renameat2")(
      from_at, from, to_at, to, flags));
}

extern "C" int unlink(const char* path) noexcept {
  return AfterwardsLook(Real<int(const char*)>("unlink")(path));
}

extern "C" int unlinkat(int at, const char* path, int flags) noexcept {
  return AfterwardsLook(Real<int(int, const char*, int)>("unlinkat")(at, path, flags));
}

extern "C" int mkdir(const char* path, mode_t mode) noexcept {
  return AfterwardsLook(Real<int(const char*, mode_t)>("mkdir")(path, mode));
}

extern "C" int rmdir(const char* path) noexcept {
  return AfterwardsLook(Real<int(const char*)>("rmdir")(path));
}

extern "C" int remove(const char* path) noexcept {
  return AfterwardsLook(Real<int(const char*)>("remove")(path));
}

extern "C" int truncate(const char* path, off_t size) noexcept {
  return AfterwardsLook(Real<int(const char*, off_t)>("truncate")(path, size));
}

extern "C" int ftruncate(int descriptor, off_t size) noexcept {
  return AfterwardsLook(Real<int(int, off_t)>("ftruncate")(descriptor, size));
}
