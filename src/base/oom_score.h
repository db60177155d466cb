// SPDX-License-Identifier: Apache-2.0
// Chooses the process that the kernel kills where memory runs out. Header only, so that oxbow_spawn
// links no library.
#pragma once

#include <algorithm>
#include <cstdio>

namespace oxbow {

// By how much a child is preferred to its parent, of 1000. The learner has the steps since the last
// checkpoint: it goes after the other children.
inline constexpr int kOomScoreOfChild = 300;
inline constexpr int kOomScoreOfLearner = 150;

// Raises this process's oom_score_adj, which anybody may. Survives an exec, and is handed on to
// children. Has no effect where /proc is not there.
inline void DieBeforeParent(int by) {
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

}  // namespace oxbow
