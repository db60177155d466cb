// SPDX-License-Identifier: Apache-2.0
// The frame of a run's page: escaping, and the page with its style sheet and its script.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace oxbow::io {

// Makes any text safe between tags and inside double quotes.
std::string EscapeHtml(std::string_view text);

// How an open page shows what is new.
enum class Reload {
  kNever,
  kItself,      // A file: it loads itself again every few seconds.
  kFromServer,  // It asks its server for what changed.
};

struct PageUpdates {
  Reload how = Reload::kNever;
  // kItself: in seconds since 1970. The page stops to load itself, and says so, ten minutes later.
  int64_t written = 0;
  std::string version = "";  // kFromServer: what the page shows, in the server's words.
};

// A section of the page. Its id stays the same while the run goes on, so that a page that is open
// replaces only what changed.
struct PageSection {
  std::string id;  // "learning"
  std::string html;
};

// A whole document in light, dark and print. It loads nothing from elsewhere. Without scripts it
// shows all but the values under the pointer and the sheets between the first and the last.
std::string Page(std::string_view title, std::string_view body, const PageUpdates& updates = {});

// The script of the page: values under the pointer, the slider over the sheets, and what is new
// while the run is live.
extern const char kPageScript[];

}  // namespace oxbow::io
