// SPDX-License-Identifier: Apache-2.0
// oxbow_spawn PARENT BINARY ARGS...: executes BINARY so that it dies with PARENT.
//
// The tie survives execve, so no child outlives a supervisor that was killed with -9. Where memory
// runs out the kernel kills BINARY before PARENT: PARENT can start it again, and says why.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/parent_death.h"

namespace {

// By how much a child is preferred to its parent, of 1000. The learner has the steps since the last
// checkpoint: it goes after the other children.
constexpr int kOomScoreOfChild = 300;
constexpr int kOomScoreOfLearner = 150;

// Raises this process's oom_score_adj, which anybody may. Survives an exec, and is handed on to
// children. Has no effect where /proc is not there.
void DieBeforeParent(int by) {
  constexpr char kFile[] = "/proc/self/oom_score_adj";
  int score = 0;
  if (std::FILE* const file = std::fopen(kFile, "re")) {
    if (std::fscanf(file, "%d", &score) != 1) score = 0;
    std::fclose(file);
  }
  if (std::FILE* const file = std::fopen(kFile, "we")) {
    std::fprintf(file, "%d", std::min(1000, score + by));
    std::fclose(file);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  if (!oxbow::DieWithParent(std::atoi(argv[1]))) return 1;
  const char* const slash = std::strrchr(argv[2], '/');
  const bool learner = std::strcmp(slash == nullptr ? argv[2] : slash + 1, "learner") == 0;
  DieBeforeParent(learner ? kOomScoreOfLearner : kOomScoreOfChild);
  execv(argv[2], argv + 2);
  std::fprintf(stderr, "cannot start: %s: %s\n", std::strerror(errno), argv[2]);
  return 3;
}
