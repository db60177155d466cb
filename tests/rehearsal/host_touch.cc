// SPDX-License-Identifier: Apache-2.0
#include "tests/rehearsal/host_touch.h"

#include <execinfo.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>

#include "tests/rehearsal/device_memory.h"

namespace oxbow::rehearsal {
namespace {

constexpr int kStackFramesMax = 64;
struct sigaction handler_before;

void OnFault(int signal, siginfo_t* fault, void*) {
  if (const DeviceMemory* memory = DeviceMemory::Holding(fault->si_addr)) {
    char line[128];
    const int length =
        std::snprintf(line, sizeof(line), "THE HOST TOUCHED DEVICE MEMORY at %p of cuda:%d\n",
                      fault->si_addr, static_cast<int>(memory->device()));
    (void)!write(STDERR_FILENO, line, static_cast<size_t>(length));
    void* frames[kStackFramesMax];
    backtrace_symbols_fd(frames, backtrace(frames, kStackFramesMax), STDERR_FILENO);
    ::signal(signal, SIG_DFL);
  } else {
    sigaction(signal, &handler_before, nullptr);
  }
  // The instruction runs again, and faults again.
}

}  // namespace

void DieWhenTheHostTouchesDeviceMemory() {
  void* frame = nullptr;
  (void)backtrace(&frame, 1);  // The first call allocates; a handler must not.
  struct sigaction action {};
  action.sa_sigaction = OnFault;
  action.sa_flags = SA_SIGINFO;
  struct sigaction current {};
  sigaction(SIGSEGV, nullptr, &current);
  if (current.sa_sigaction == OnFault) return;
  handler_before = current;
  sigaction(SIGSEGV, &action, nullptr);
}

}  // namespace oxbow::rehearsal
