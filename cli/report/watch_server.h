// SPDX-License-Identifier: Apache-2.0
// Serves the page of a run over HTTP while the run goes on, and after it:
//
//   GET /                    the page; it asks for what is new by itself
//   GET /state.json?have=V   the sections that changed since version V; 204 if none did
//   GET /sheets/STEP/SIZE    all pictures of an evaluation on one; SIZE: small, middle or large
//   GET /samples/DIR/FILE    one picture of it, or its contact sheet
//   GET /replay/FILE         the picture of a replay entry that the page shows
//
// Reads the run's directory only and changes nothing in it but the small copies of sheets. There
// is no password: listen on the loopback address, or in a network of your own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "cli/replay/replay_rows.h"
#include "io/report/report.h"

namespace oxbow::cli {

// The page of a run as its server keeps it: built again when the run's files have changed, but so
// seldom that this takes at most a hundredth of a core, however long the run and however many ask.
//
// A version is the text of a number that grows with each building. An open page says which it
// shows, and gets the sections that changed since.
class LivePage {
 public:
  struct Options {
    std::filesystem::path run_dir;
    // A section about replay entries; empty text: none.
    std::function<std::string()> replay;
    const Clock* clock = &Clock::Steady();
    double share_max = 0.01;  // How much of a core building may take; 0: no limit.
  };

  explicit LivePage(Options options);

  // The whole document.
  std::string Document();

  // {"version", "order": the id of each section, "parts": the content of those that changed} as
  // JSON; all sections if `have` is no version of this server. Absent if nothing changed.
  std::optional<std::string> NewSince(const std::string& have);

 private:
  struct Standing {
    io::PageSection part;
    uint64_t changed = 0;  // The building that changed it.
  };

  // A text that changes with every step, every sheet, and the run's end.
  std::string Stamp() const;
  void Refresh() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Build() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RestAfter(absl::Duration spent) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string VersionOf(uint64_t building) const;

  const Options options_;
  const int64_t epoch_;  // Versions of another server are not this one's.
  absl::Mutex mutex_;
  io::RunReading run_ ABSL_GUARDED_BY(mutex_);
  std::string stamp_ ABSL_GUARDED_BY(mutex_);
  uint64_t buildings_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Standing> parts_ ABSL_GUARDED_BY(mutex_);
  absl::Duration rests_until_ ABSL_GUARDED_BY(mutex_);
};

// The best entries of a run's replay buffer, with their pictures, as a section of its page.
//
// Asks the buffer every ten seconds at most, and of pictures only for those that it does not hold.
// The page's threads share it.
class ReplayShelf {
 public:
  explicit ReplayShelf(std::string run_dir, const Clock& clock = Clock::Steady())
      : run_dir_(std::move(run_dir)), clock_(clock) {}

  // Empty for a run without entries, and while its buffer does not answer.
  std::string Section();

  // The bytes of a file that the section names, "77.jpg"; empty: there is no such file.
  std::string Picture(const std::string& name);

 private:
  struct Kept {
    std::string file;  // "77.jpg"
    int width = 0;
    int height = 0;
    std::string bytes;
  };

  // Makes the section, and finds the pictures that it shows.
  absl::Status Look() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string EntryHtml(const ReplayRow& row) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string run_dir_;
  const Clock& clock_;
  absl::Mutex mutex_;
  absl::Duration next_ ABSL_GUARDED_BY(mutex_);
  std::string section_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, Kept> pictures_ ABSL_GUARDED_BY(mutex_);  // By the entry that is shown.
};

class WatchServer {
 public:
  struct Options {
    LivePage::Options page;
    // The bytes of such a picture, "77.jpg"; empty: there is none. Null: as if it were empty.
    std::function<std::string(const std::string& name)> replay_picture;
    std::string host = "127.0.0.1";
    int port = 0;  // 0: any that is free.
  };

  // Listens, and answers in threads of its own until the destructor. kUnavailable if the address
  // cannot be bound; kNotFound if there is no such directory.
  static absl::StatusOr<std::unique_ptr<WatchServer>> Start(Options options);
  ~WatchServer();

  int port() const;

 private:
  struct Http;
  explicit WatchServer(Options options);
  void AddRoutes();

  const Options options_;
  LivePage page_;
  std::unique_ptr<Http> http_;
};

}  // namespace oxbow::cli
