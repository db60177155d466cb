// SPDX-License-Identifier: Apache-2.0
#include "base/checksum.h"

#include <xxhash.h>

namespace oxbow {

std::string Checksum128(std::string_view bytes) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes.data(), bytes.size()));
  return {reinterpret_cast<const char*>(canonical.digest), sizeof(canonical.digest)};
}

}  // namespace oxbow
