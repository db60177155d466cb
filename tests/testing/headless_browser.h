// SPDX-License-Identifier: Apache-2.0
// A page in headless Chromium at several widths, for tests.
#pragma once

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace oxbow::testing {

inline std::string OutputOf(const std::string& command) {
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return "";
  std::string output;
  char buffer[1 << 14];
  for (size_t count = 0; (count = fread(buffer, 1, sizeof buffer, pipe)) > 0;) {
    output.append(buffer, count);
  }
  pclose(pipe);
  return output;
}

// Its program; "" if it is not installed (the Debian package `chromium`).
inline std::string FindChromium() {
  std::string path = OutputOf("command -v chromium || command -v chromium-browser || true");
  while (!path.empty() && path.back() == '\n') path.pop_back();
  return path;
}

// To stand before a page's own script: keeps what goes wrong in window.problems.
inline constexpr char kKeepProblems[] = R"js(<script>
window.problems = [];
for (const kind of ['error', 'warn', 'assert']) {
  console[kind] = (...said) => { window.problems.push(kind + ': ' + said.join(' ')); };
}
window.onerror = what => { window.problems.push(String(what)); };
window.onunhandledrejection = event => { window.problems.push(String(event.reason)); };
document.addEventListener('securitypolicyviolation', e => window.problems.push(e.blockedURI));
</script>)js";

// A page that shows `address` in frames of these widths, and keeps what the frames post to it.
inline std::string FramesOf(const std::string& address, std::span<const int> widths) {
  std::string frames =
      "<style>iframe{border:0}</style><pre id=out></pre><script>const seen=[];onmessage=e=>{"
      "seen.push(e.data);out.textContent=JSON.stringify(seen)}</script>";
  for (const int width : widths) {
    absl::StrAppendFormat(&frames, "<iframe src=%s width=%d height=900></iframe>", address, width);
  }
  return frames;
}

// The messages that the frames of such a page have posted; the document itself if there were none.
// `profile` is a directory for the browser's own files.
inline nlohmann::json LookAt(const std::string& chromium, const std::string& address,
                             const std::filesystem::path& profile, int patience_ms) {
  const std::string dom = OutputOf(absl::StrCat(
      "timeout 120 ", chromium,
      " --headless --no-sandbox --disable-gpu --window-size=3000,1200 --virtual-time-budget=",
      patience_ms, " --user-data-dir=", profile.string(), " --dump-dom ", address, " 2>/dev/null"));
  const size_t begin = dom.find("<pre id=\"out\">"), end = dom.find("</pre>", begin);
  if (begin == std::string::npos || end == std::string::npos) return dom;
  const std::string text = dom.substr(begin + 14, end - begin - 14);
  return nlohmann::json::parse(
      absl::StrReplaceAll(text, {{"&lt;", "<"}, {"&gt;", ">"}, {"&amp;", "&"}}), nullptr, false);
}

}  // namespace oxbow::testing
