// SPDX-License-Identifier: Apache-2.0
#include "core/parallel/node_memory.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/log.h"
#include "base/process.h"
#include "base/status_macros.h"
#include "core/parallel/ranks.h"

namespace oxbow::parallel {
namespace {

// The name that the kernel gives an open file: another file of the same number is not taken for it.
std::string IdentityOf(int file) {
  struct stat facts {};
  if (fstat(file, &facts) != 0) return "";
  return absl::StrCat(facts.st_dev, ":", facts.st_ino, ":", facts.st_size);
}

// A file in memory alone, without a name.
int MakeFile(size_t bytes) {
  const int file = memfd_create("oxbow_weights", MFD_CLOEXEC);
  if (file >= 0 && ftruncate(file, static_cast<off_t>(bytes)) == 0) return file;
  if (file >= 0) close(file);
  return -1;
}

std::string Offer(int file) {
  return file < 0 ? "" : absl::StrCat(getpid(), " ", file, " ", IdentityOf(file));
}

// The file of an offer, opened anew; -1: it cannot be.
int Opened(const std::string& offer) {
  const std::vector<std::string> parts = absl::StrSplit(offer, ' ');
  if (parts.size() != 3) return -1;
  const std::string path = absl::StrCat("/proc/", parts[0], "/fd/", parts[1]);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0 || IdentityOf(file) == parts[2]) return file;
  close(file);
  return -1;
}

std::byte* Mapped(int file, size_t bytes) {
  if (file < 0) return nullptr;
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

// Whether all ranks of `machine` have seen the memory.
bool AllSaw(const std::vector<std::string>& machines, const std::string& machine,
            const std::vector<std::string>& seen) {
  for (size_t rank = 0; rank < seen.size(); ++rank) {
    if (machines[rank] == machine && seen[rank].empty()) return false;
  }
  return true;
}

// Functions of the CUDA runtime, where the process has one.
template <typename Function>
Function* CudaFunction(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

}  // namespace

absl::StatusOr<std::shared_ptr<NodeMemory>> NodeMemory::Share(Ranks& ranks, size_t bytes) {
  const std::string machine = MachineId();
  OXBOW_ASSIGN_OR_RETURN(const std::vector<std::string> machines, ranks.GatherBytes(machine));
  const int place =
      static_cast<int>(std::count(machines.begin(), machines.begin() + ranks.rank(), machine));
  const int count = static_cast<int>(std::count(machines.begin(), machines.end(), machine));
  const auto leader =
      static_cast<size_t>(std::find(machines.begin(), machines.end(), machine) - machines.begin());
  const int made = place == 0 ? MakeFile(bytes) : -1;
  const absl::Cleanup done = [made] {
    if (made >= 0) close(made);
  };
  OXBOW_ASSIGN_OR_RETURN(const std::vector<std::string> offers, ranks.GatherBytes(Offer(made)));
  const int file = Opened(offers[leader]);
  std::byte* const data = Mapped(file, bytes);
  if (file >= 0) close(file);
  std::shared_ptr<NodeMemory> memory(data == nullptr ? nullptr
                                                     : new NodeMemory(data, bytes, place, count));
  OXBOW_ASSIGN_OR_RETURN(const std::vector<std::string> seen,
                         ranks.GatherBytes(memory == nullptr ? "" : "1"));
  if (AllSaw(machines, machine, seen)) return memory;
  OXBOW_LOG(Warning) << "ranks of a machine do not see each other's memory: each keeps all weights"
                     << Field("rank", ranks.rank());
  const int own_file = MakeFile(bytes);
  std::byte* const own_data = Mapped(own_file, bytes);
  if (own_file >= 0) close(own_file);
  if (own_data == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("no address space for ", bytes, " bytes"));
  }
  return std::shared_ptr<NodeMemory>(new NodeMemory(own_data, bytes, /*place=*/0, /*count=*/1));
}

void NodeMemory::Pin(size_t bytes) {
  constexpr unsigned kPortable = 1;  // cudaHostRegisterPortable
  auto* const pin = CudaFunction<int(void*, size_t, unsigned)>("cudaHostRegister");
  if (pin == nullptr) return;
  const int error = pin(data_, bytes, kPortable);
  pinned_ = error == 0;
  if (!pinned_) {
    OXBOW_LOG(Warning) << "memory that ranks share is not pinned: copies from it are slow"
                       << Field("cuda_error", error);
  }
}

NodeMemory::~NodeMemory() {
  if (pinned_) {
    auto* const release = CudaFunction<int(void*)>("cudaHostUnregister");
    if (release != nullptr) release(data_);
  }
  munmap(data_, bytes_);
}

}  // namespace oxbow::parallel
