// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace oxbow {

// The name of this build for other processes: "0.1.0", and of a build that was given a revision, as
// those of images are, "0.1.0+1a2b3c4d5e".
std::string BuildVersion();

}  // namespace oxbow
