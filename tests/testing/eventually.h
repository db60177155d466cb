// SPDX-License-Identifier: Apache-2.0
// Waits for something that another process brings about; a deadline, not a duration.
#pragma once

#include <poll.h>

namespace oxbow::testing {

// Whether `condition` holds within a minute. It is asked 20 times a second.
template <typename Condition>
bool Eventually(Condition condition) {
  for (int i = 0; i < 1200 && !condition(); ++i) poll(nullptr, 0, 50);
  return condition();
}

}  // namespace oxbow::testing
