// SHA-256 of bytes, the content address of weight chunks and checkpoints.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace oxbow {

std::string Sha256(std::string_view bytes);     // 32 raw bytes.
std::string Sha256Hex(std::string_view bytes);  // 64 hexadecimal digits.
std::string HexOf(std::string_view raw);

// First eight bytes of SHA-256, big-endian: a stable id for prompts and schedules.
uint64_t Fingerprint64(std::string_view bytes);

}  // namespace oxbow
