// SPDX-License-Identifier: Apache-2.0
// An entry of the replay buffer: a stored trajectory; in the queues a prompt or a whole group.
//
// The same type is offered, held and read. What is held in memory is the record; the bytes of the
// parts are on disk, and in an entry that is offered or read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/ids.h"
#include "core/replay/table_policy.h"

namespace oxbow::buffer {

// Where the parts of a large entry lie.
struct Location {
  uint64_t segment = 0;  // Number of its file; 0: the parts are in the database.
  uint64_t offset = 0;   // In bytes.
  bool operator==(const Location&) const = default;
};

struct Entry {
  // The record.
  EntryId id;
  std::string table = replay::kBestTable;
  uint64_t place = 0;  // In the order of its table; set by the store.
  PromptId prompt;
  LearnerStep birth;               // Step whose weights made it.
  double reward = 0;               // Raw, of its first picture; never changes.
  std::optional<double> rescored;  // Raw, of the picture that was generated last.
  uint64_t failures = 0;           // Regenerations in a row that failed.
  uint64_t tries = 0;              // All its regenerations,
  uint64_t tries_failed = 0;       // and those that failed.
  uint64_t uses = 0;               // Committed steps that trained on it.
  LearnerStep last_used;           // Step of the last use; meaningless while uses is 0.
  bool retired = false;  // In no table any more, kept because an uncommitted step has drawn it.
  uint32_t latent_count = 0;  // 0 only in queues.
  uint64_t latent_bytes = 0;  // Size of one latent; the store sets this and the sizes below.
  uint64_t header_bytes = 0;
  uint64_t conditioning_bytes = 0;
  Location location;  // Set by the store.

  // The parts: bytes that the store does not look into.
  std::string header;
  std::string conditioning;  // And the picture. Read only where asked for.
  std::string latents;       // Offered only: latent_count of equal size. ReadLatents reads them.

  std::string invalid;  // Offered only: why it cannot be stored; then no field but the id counts.
  double priority = 0;  // Read only: at the store's step.

  double value() const {
    return rescored.value_or(reward);
  }  // The value that counts; age does not matter.
  uint64_t bytes() const { return latent_count * latent_bytes + header_bytes + conditioning_bytes; }
  // Without the parts.
  Entry Record() const {
    return {.id = id,
            .table = table,
            .place = place,
            .prompt = prompt,
            .birth = birth,
            .reward = reward,
            .rescored = rescored,
            .failures = failures,
            .tries = tries,
            .tries_failed = tries_failed,
            .uses = uses,
            .last_used = last_used,
            .retired = retired,
            .latent_count = latent_count,
            .latent_bytes = latent_bytes,
            .header_bytes = header_bytes,
            .conditioning_bytes = conditioning_bytes,
            .location = location};
  }
  bool operator==(const Entry&) const = default;
};

// The findings of a step that generated an entry's picture again.
struct Rescored {
  EntryId entry;
  std::optional<double> reward;  // The entry's value from now on; none: it keeps its own.
  bool failed = false;
};

}  // namespace oxbow::buffer
