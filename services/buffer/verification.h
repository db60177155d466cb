// SPDX-License-Identifier: Apache-2.0
// Checks that what a replay store holds is whole: reads every part of an entry, which checks its
// checksum, and compares it with the entry's record and header.
//
//   record        decodes; its reward is finite
//   header        is there, has its size, decodes; id, prompt, birth and reward are the record's;
//                 the prompt's id is that of its text; its numbers are finite
//   conditioning  is there, has its size, decodes; tensors have the bytes they declare
//   latents       are there, each of its size; together as declared; every number finite
//
// One entry cannot show that its prompt has one entry: the reader of all pages compares prompts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "io/tensor_bytes.h"
#include "services/buffer/replay_records.h"

namespace oxbow::buffer {

class Database;

struct VerifiedRecord {
  EntryId entry;
  PromptId prompt;  // 0 if the record is unreadable: then only the problems count.
  std::string table;
  bool retired = false;
  uint64_t bytes = 0;
  std::vector<std::string> problems;  // Empty: sound.
};

struct VerifiedPage {
  std::vector<VerifiedRecord> entries;
  std::string next;  // Cursor of the next page; empty: that was all.
};

// Bytes that are read for one page, at most; the last entry may go over it.
inline constexpr uint64_t kVerifiedBytesMax = uint64_t{64} << 20;

// Checks up to `limit` entries behind `cursor` (empty: from the first one), `best` first, queues
// behind it. A damaged entry is a finding; an error is a store that cannot be read at all, or
// kInvalidArgument for what is no cursor. Holds one part of an entry at a time.
absl::StatusOr<VerifiedPage> VerifyEntries(const Database& database, const std::string& cursor,
                                           uint64_t limit);

// Whether all numbers of a little-endian tensor are finite; true for integers.
bool AllFinite(io::DType dtype, std::string_view bytes);

}  // namespace oxbow::buffer
