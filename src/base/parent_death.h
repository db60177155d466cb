// SPDX-License-Identifier: Apache-2.0
// Ties a process's life to its parent's. Header only, so that oxbow_spawn links no library.
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace oxbow {

// From here on this process is killed when the thread that started it ends. False if `parent`, the
// process that should have started it, has ended already. Survives an exec.
inline bool DieWithParent(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  return getppid() == parent;  // It may have ended before the line above.
}

}  // namespace oxbow
