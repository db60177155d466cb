// SPDX-License-Identifier: Apache-2.0
// A process's use of its devices: kernels, bytes, transfers, waits and memory.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

namespace oxbow::rehearsal {

struct Work {
  uint64_t count = 0;
  double bytes = 0;
  double flop = 0;
};

enum class Transfer { kHostToDevice, kDeviceToHost, kDeviceToDevice, kValue };

// Counts of one device. A value is a transfer of a few bytes: item(), a comparison, a size.
struct Figures {
  std::map<std::string, Work, std::less<>> kernels;           // By operator.
  std::map<Transfer, std::map<std::string, Work>> transfers;  // By call site.
  std::map<std::string, Work> waits;  // By call site: transfers after all that was launched before.

  Work AllKernels() const;
  Work All(Transfer transfer) const;
  Work AllWaits() const;
};

class DeviceLog {
 public:
  void Kernel(c10::DeviceIndex device, std::string_view name, double bytes, double flop);
  // `waits`: the host goes on when it is done. With a log to write, names the call site: the
  // innermost frame that is neither LibTorch's nor this library's.
  void Moved(c10::DeviceIndex device, Transfer transfer, double bytes, bool waits);

  Figures Of(c10::DeviceIndex device) const;
  void Clear();

  // Writes the file that settings.h asks for. The process does so when it ends.
  void Write() const;

 private:
  mutable std::mutex mutex_;
  std::map<c10::DeviceIndex, Figures> devices_;
};

DeviceLog& TheLog();

}  // namespace oxbow::rehearsal
