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
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cli/report/live_page.h"

namespace oxbow::cli {

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
