// SPDX-License-Identifier: Apache-2.0
// oxbow_spawn PARENT BINARY ARGS...: executes BINARY so that it dies with PARENT.
//
// The tie survives execve, so no child outlives a supervisor that was killed with -9. Where memory
// runs out the kernel kills BINARY before PARENT: PARENT can start it again, and says why.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/oom_score.h"
#include "base/parent_death.h"

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  if (!oxbow::DieWithParent(std::atoi(argv[1]))) return 1;
  const char* const slash = std::strrchr(argv[2], '/');
  const bool learner = std::strcmp(slash == nullptr ? argv[2] : slash + 1, "learner") == 0;
  oxbow::DieBeforeParent(learner ? oxbow::kOomScoreOfLearner : oxbow::kOomScoreOfChild);
  execv(argv[2], argv + 2);
  std::fprintf(stderr, "cannot start: %s: %s\n", std::strerror(errno), argv[2]);
  return 3;
}
