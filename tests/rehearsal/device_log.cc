// SPDX-License-Identifier: Apache-2.0
#include "tests/rehearsal/device_log.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <unordered_map>

#include "tests/rehearsal/device_memory.h"
#include "tests/rehearsal/settings.h"

namespace oxbow::rehearsal {
namespace {

constexpr int kFramesMax = 48;

std::string BaseName(const std::string& path) { return path.substr(path.rfind('/') + 1); }

bool IsLibrary(const std::string& name) {
  for (const char* prefix : {"libtorch", "libc10", "libc.", "libstdc++", "ld-linux"}) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

// "learner+0x1234": what addr2line reads. Empty for an address in a library.
std::string NameOfAddress(void* address) {
  Dl_info info;
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return {};
  const std::string name = BaseName(info.dli_fname);
  if (IsLibrary(name)) return {};
  std::array<char, 32> offset;
  std::snprintf(
      offset.data(), offset.size(), "+0x%zx",
      static_cast<size_t>(static_cast<char*>(address) - static_cast<char*>(info.dli_fbase)) -
          1);  // The call, not what it returns to.
  return name + offset.data();
}

std::string CallSite() {
  thread_local std::unordered_map<void*, std::string> names;  // dladdr is slow.
  std::array<void*, kFramesMax> frames;
  const int count = backtrace(frames.data(), kFramesMax);
  for (int i = 1; i < count; ++i) {
    void* const frame = frames[static_cast<size_t>(i)];
    auto known = names.find(frame);
    if (known == names.end()) known = names.emplace(frame, NameOfAddress(frame)).first;
    if (!known->second.empty()) return known->second;
  }
  return "unknown";
}

const char* NameOf(Transfer transfer) {
  switch (transfer) {
    case Transfer::kHostToDevice:
      return "host_to_device";
    case Transfer::kDeviceToHost:
      return "device_to_host";
    case Transfer::kDeviceToDevice:
      return "device_to_device";
    case Transfer::kValue:
      return "values";
  }
  return "";
}

void Add(Work& sum, const Work& work) {
  sum.count += work.count;
  sum.bytes += work.bytes;
  sum.flop += work.flop;
}

template <typename Map>
Work Sum(const Map& works) {
  Work sum;
  for (const auto& [name, work] : works) Add(sum, work);
  return sum;
}

template <typename Map>
void WriteMap(std::ostream& out, const Map& works) {
  out << "{";
  const char* comma = "";
  for (const auto& [name, work] : works) {
    out << comma << "\n    \"" << name << "\": {\"count\": " << work.count
        << ", \"bytes\": " << work.bytes << ", \"flop\": " << work.flop << "}";
    comma = ",";
  }
  out << "}";
}

}  // namespace

Work Figures::AllKernels() const { return Sum(kernels); }

Work Figures::AllWaits() const { return Sum(waits); }

Work Figures::All(Transfer transfer) const {
  const auto found = transfers.find(transfer);
  return found == transfers.end() ? Work{} : Sum(found->second);
}

DeviceLog& TheLog() {
  static auto* const log = new DeviceLog;  // Threads may outlive every static object.
  [[maybe_unused]] static const int at_exit = std::atexit([] { log->Write(); });
  return *log;
}

void DeviceLog::Kernel(c10::DeviceIndex device, std::string_view name, double bytes, double flop) {
  const std::scoped_lock lock(mutex_);
  auto& kernels = devices_[device].kernels;
  auto found = kernels.find(name);
  if (found == kernels.end()) found = kernels.emplace(std::string(name), Work{}).first;
  Add(found->second, {1, bytes, flop});
}

void DeviceLog::Moved(c10::DeviceIndex device, Transfer transfer, double bytes, bool waits) {
  const std::string site = TheSettings().log_directory.empty() ? "" : CallSite();
  const std::scoped_lock lock(mutex_);
  Figures& figures = devices_[device];
  Add(figures.transfers[transfer][site], {1, bytes, 0});
  if (waits) Add(figures.waits[site], {1, bytes, 0});
}

Figures DeviceLog::Of(c10::DeviceIndex device) const {
  const std::scoped_lock lock(mutex_);
  const auto found = devices_.find(device);
  return found == devices_.end() ? Figures{} : found->second;
}

void DeviceLog::Clear() {
  const std::scoped_lock lock(mutex_);
  devices_.clear();
}

void DeviceLog::Write() const {
  const std::string& directory = TheSettings().log_directory;
  const std::scoped_lock lock(mutex_);
  if (directory.empty() || devices_.empty()) return;
  std::array<char, 4096> program = {};
  (void)!readlink("/proc/self/exe", program.data(), program.size() - 1);
  std::ofstream out(directory + "/" + BaseName(program.data()) + "-" + std::to_string(getpid()) +
                    ".json");
  out << "{\"program\": \"" << program.data() << "\", \"devices\": {";
  const char* comma = "";
  for (const auto& [device, figures] : devices_) {
    const MemoryUse use = DeviceMemory::Of(device).Use();
    out << comma << "\n  \"" << static_cast<int>(device) << "\": {\"held_bytes\": " << use.held
        << ", \"peak_bytes\": " << use.peak << ", \"allocations\": " << use.allocations
        << ",\n   \"kernels\": ";
    WriteMap(out, figures.kernels);
    for (const auto& [transfer, sites] : figures.transfers) {
      out << ",\n   \"" << NameOf(transfer) << "\": ";
      WriteMap(out, sites);
    }
    out << ",\n   \"waits\": ";
    WriteMap(out, figures.waits);
    out << "}";
    comma = ",";
  }
  out << "}}\n";
}

}  // namespace oxbow::rehearsal
