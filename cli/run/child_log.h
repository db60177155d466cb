// SPDX-License-Identifier: Apache-2.0
// logs/NAME.log: the stderr of a child of `oxbow train`, all its lives. It is bounded: the child
// goes on appending while it is moved to NAME.log.1.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace oxbow::cli {

inline constexpr std::uintmax_t kLogBytesMax = std::uintmax_t{16} << 20;

// The log before the present one.
std::filesystem::path FormerLog(const std::filesystem::path& log);

// Moves the content of a log of more than `bytes_max` to FormerLog, in place of what that had, and
// empties it. The writer must append; a line that it writes in the instant between the two may be
// lost. False if the log is smaller, or could not be copied: then nothing is changed.
bool MoveIfLarge(const std::filesystem::path& log, std::uintmax_t bytes_max = kLogBytesMax);

// The line from `begin` (a byte) on that says why the process ended: what it said last under its
// own name ("learner: ..."), or its last error, or its last line that is no event, such as a
// library's. Empty if there is none: it was killed. Reads no more than the end of the log.
std::string LastWords(const std::filesystem::path& log, std::uintmax_t begin,
                      const std::string& name);

// The last `lines` lines of a log from `begin` (a byte) on, for a person.
std::string LogTail(const std::filesystem::path& log, int lines, std::uintmax_t begin = 0);

}  // namespace oxbow::cli
