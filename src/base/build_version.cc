// SPDX-License-Identifier: Apache-2.0
#include "base/build_version.h"

#ifndef OXBOW_BUILD_REVISION
#define OXBOW_BUILD_REVISION ""
#endif

namespace oxbow {

std::string BuildVersion() {
  const std::string revision = OXBOW_BUILD_REVISION;
  return revision.empty() ? OXBOW_VERSION : OXBOW_VERSION "+" + revision;
}

}  // namespace oxbow
