// SPDX-License-Identifier: Apache-2.0
// Where `oxbow replay` reads, and what `verify` finds there: a replay buffer that runs, or the
// directory of one that does not.
//
// Changes nothing there: calls to a live buffer are List, Read, Verify and Info; a directory is
// opened for reading, and no replay_buffer can start on it meanwhile.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "cli/replay/replay_rows.h"
#include "core/replay/priority.h"
#include "oxbow/v1/config.pb.h"
#include "oxbow/v1/replay_buffer.pb.h"
#include "services/buffer/replay_client.h"

namespace oxbow::cli {

class ReplaySource {
 public:
  virtual ~ReplaySource() = default;

  // "127.0.0.1:7001" or "runs/digits/replay".
  virtual std::string name() const = 0;
  virtual bool live() const = 0;

  virtual absl::StatusOr<v1::InfoResponse> Info() = 0;

  // Entries of a table behind `after`, without latents, conditioning and pictures; none if there
  // are no more.
  virtual absl::StatusOr<std::vector<v1::ReplayEntry>> Page(const std::string& table,
                                                            EntryId after) = 0;

  // An entry of any table, whole. kNotFound if it is not there.
  virtual absl::StatusOr<v1::ReplayEntry> Read(EntryId entry) = 0;

  // An entry of any table without its latents, but with its picture.
  virtual absl::StatusOr<v1::ReplayEntry> ReadPicture(EntryId entry) = 0;

  // The next checked entries; the last page has no cursor.
  virtual absl::StatusOr<v1::VerifyResponse> Verify(const std::string& cursor) = 0;
};

// Entries held at a time while a table is read.
inline constexpr uint32_t kReplayPage = 200;

struct ReplayPlace {
  std::string buffer;  // Exactly one of these three is set.
  std::string data;
  std::string run_dir;  // Its live buffer if one answers, else its directory.
  uint32_t shard = 0;   // One of the run's buffers.
  std::string config;   // Resolved; empty: that of the run that the directory is of, if any.
};

struct OpenedReplay {
  std::unique_ptr<ReplaySource> source;
  std::optional<v1::RunConfig> config;  // The run's, where it is known.
};

// kInvalidArgument unless exactly one place is set.
absl::StatusOr<OpenedReplay> OpenReplay(const ReplayPlace& place, absl::Duration timeout);

// The buffer that was opened, with what its rows are computed with.
struct Looked {
  OpenedReplay opened;
  v1::InfoResponse info;
  RowContext context;

  ReplaySource& source() const { return *opened.source; }
};

// The errors of OpenReplay and Info.
absl::StatusOr<Looked> Look(const ReplayPlace& place, absl::Duration timeout);

// Adds the rows of all entries of a table.
absl::Status AddRows(const Looked& looked, const std::string& table, TopRows& rows);

// `oxbow replay verify`: reads everything that a replay buffer holds, page by page, and names what
// is not sound.
//
// Finds what is wrong with an entry by itself (services/buffer/verification.h), and two live
// entries of one prompt in the table `best`. A live buffer changes while it is read, so a pair that
// was seen on two pages counts only if both are still there.
struct ReplayFinding {
  uint64_t entry = 0;
  std::string table;
  std::string problem;
};

struct ReplayAudit {
  uint64_t entries = 0;  // Checked, of all tables, retired ones included.
  uint64_t bytes = 0;
  uint64_t damaged = 0;                 // Entries with a finding.
  std::vector<ReplayFinding> findings;  // At most `findings_max` of them.
  bool sound() const { return damaged == 0; }
};

inline constexpr size_t kFindingsMax = 1000;

// Memory: two integers an entry, and the findings.
absl::StatusOr<ReplayAudit> AuditReplay(ReplaySource& source, size_t findings_max = kFindingsMax);

std::string AuditText(const ReplayAudit& audit, const std::string& source);
std::string AuditJson(const ReplayAudit& audit, const std::string& source);

}  // namespace oxbow::cli
