// What a replay buffer takes at a time unless its flags say otherwise.
#pragma once

#include <cstdint>

namespace oxbow::buffer {

inline constexpr uint64_t kEntryBytesMax = uint64_t{128} << 20;
inline constexpr uint64_t kOfferBytesMax = uint64_t{256} << 20;  // Of all Offer calls.

}  // namespace oxbow::buffer
