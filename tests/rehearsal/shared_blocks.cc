// SPDX-License-Identifier: Apache-2.0
// The CUDA runtime's blocks of memory, and how another process opens one (core/model/gpu_block.cc).
// A block that is lent becomes a file in memory, which both map where kernels see it.
#include <c10/util/Exception.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "tests/rehearsal/device_memory.h"
#include "tests/rehearsal/settings.h"
#include "tests/rehearsal/streams.h"

namespace oxbow::rehearsal {

struct IpcHandle {
  char bytes[64];
};

namespace {

enum CudaError { kSuccess = 0, kInvalidValue = 1, kMemoryAllocation = 2, kNotSupported = 801 };

// The words of a handle.
struct LentFile {
  pid_t process;
  int file;
  ino_t inode;
  size_t bytes;
};
static_assert(sizeof(LentFile) <= sizeof(IpcHandle));

struct SharedBlock {
  size_t bytes = 0;
  bool opened = false;  // Another process's.
  int file = -1;        // The memory of a block that is lent.
};

std::mutex blocks_mutex;
std::map<void*, SharedBlock>& Blocks() {
  static auto* const blocks = new std::map<void*, SharedBlock>;
  return *blocks;
}

void* KernelSideOf(void* address) {
  return DeviceMemory::Of(DeviceMemory::Holding(address)->device()).KernelSide(address);
}

// Puts the file where kernels see that address.
bool MapAt(void* address, int file, size_t bytes) {
  return mmap(KernelSideOf(address), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file,
              0) != MAP_FAILED;
}

int MakeFileOf(void* address, size_t bytes) {
  const int file = memfd_create("oxbow_lent_block", MFD_CLOEXEC);
  if (file < 0) return -1;
  const char* const from = static_cast<const char*>(KernelSideOf(address));
  for (size_t done = 0; done < bytes;) {
    const ssize_t wrote = write(file, from + done, bytes - done);
    if (wrote <= 0) return -1;
    done += static_cast<size_t>(wrote);
  }
  return MapAt(address, file, bytes) ? file : -1;
}

bool CanShare() { return TheSettings().shares_memory && TheSettings().mode != Mode::kDry; }

}  // namespace

#define OXBOW_CUDA_RUNTIME extern "C" __attribute__((visibility("default")))

OXBOW_CUDA_RUNTIME int cudaMalloc(void** address, size_t bytes) {
  try {
    *address = DeviceMemory::Of(CurrentDevice().index()).TakePages(bytes, /*held=*/true);
  } catch (const c10::OutOfMemoryError&) {
    return kMemoryAllocation;
  }
  const std::scoped_lock lock(blocks_mutex);
  Blocks()[*address] = {.bytes = bytes};
  return kSuccess;
}

OXBOW_CUDA_RUNTIME int cudaFree(void* address) {
  const std::scoped_lock lock(blocks_mutex);
  const auto found = Blocks().find(address);
  if (found == Blocks().end() || found->second.opened) return kInvalidValue;
  DeviceMemory::Of(DeviceMemory::Holding(address)->device()).GivePages(found->second.bytes);
  if (found->second.file >= 0) close(found->second.file);
  Blocks().erase(found);
  return kSuccess;
}

OXBOW_CUDA_RUNTIME int cudaIpcGetMemHandle(IpcHandle* handle, void* address) {
  if (!CanShare()) return kNotSupported;
  const std::scoped_lock lock(blocks_mutex);
  const auto found = Blocks().find(address);
  if (found == Blocks().end() || found->second.opened) return kInvalidValue;
  SharedBlock& block = found->second;
  SynchronizeDevice(DeviceMemory::Holding(address)->device());
  if (block.file < 0) block.file = MakeFileOf(address, block.bytes);
  struct stat facts {};
  if (block.file < 0 || fstat(block.file, &facts) != 0) return kMemoryAllocation;
  const LentFile lent{getpid(), block.file, facts.st_ino, block.bytes};
  std::memcpy(handle->bytes, &lent, sizeof lent);
  return kSuccess;
}

OXBOW_CUDA_RUNTIME int cudaIpcOpenMemHandle(void** address, IpcHandle handle, unsigned) {
  if (!CanShare()) return kNotSupported;
  LentFile lent{};
  std::memcpy(&lent, handle.bytes, sizeof lent);
  if (lent.process == getpid()) return kInvalidValue;
  const std::string path =
      "/proc/" + std::to_string(lent.process) + "/fd/" + std::to_string(lent.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return kInvalidValue;
  struct stat facts {};
  const bool same = fstat(file, &facts) == 0 && facts.st_ino == lent.inode;
  if (same) {
    *address = DeviceMemory::Of(CurrentDevice().index()).TakePages(lent.bytes, /*held=*/false);
  }
  const bool mapped = same && MapAt(*address, file, lent.bytes);
  close(file);
  if (!mapped) return kInvalidValue;
  const std::scoped_lock lock(blocks_mutex);
  Blocks()[*address] = {.bytes = lent.bytes, .opened = true};
  return kSuccess;
}

OXBOW_CUDA_RUNTIME int cudaIpcCloseMemHandle(void* address) {
  const std::scoped_lock lock(blocks_mutex);
  const auto found = Blocks().find(address);
  if (found == Blocks().end() || !found->second.opened) return kInvalidValue;
  // A process that reads it still dies.
  mmap(KernelSideOf(address), found->second.bytes, PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  Blocks().erase(found);
  return kSuccess;
}

OXBOW_CUDA_RUNTIME int cudaDeviceGetPCIBusId(char* id, int length, int device) {
  if (device < 0 || device >= TheSettings().devices) return kInvalidValue;
  std::snprintf(id, static_cast<size_t>(length), "0000:%02X:00.0", device + 1);
  return kSuccess;
}

OXBOW_CUDA_RUNTIME int cudaGetLastError() { return kSuccess; }

}  // namespace oxbow::rehearsal
