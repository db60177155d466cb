// oxbow_spawn PARENT BINARY ARGS...: executes BINARY so that it dies with PARENT.
//
// PR_SET_PDEATHSIG survives execve, so no child outlives a supervisor that was killed with -9.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != std::atoi(argv[1])) return 1;  // The parent died before the line above.
  execv(argv[2], argv + 2);
  std::fprintf(stderr, "cannot start: %s: %s\n", std::strerror(errno), argv[2]);
  return 3;
}
