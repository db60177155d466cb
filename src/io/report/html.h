// The frame of report.html: escaping, inline images and the page with its style sheet.
#pragma once

#include <string>
#include <string_view>

namespace oxbow::io {

// Makes any text safe between tags and inside double quotes.
std::string EscapeHtml(std::string_view text);

// <img> with the PNG inside the page. `alternative` is what a screen reader says.
std::string InlinePng(std::string_view png, std::string_view alternative);

// A whole document in light, dark and print; no scripts, no network.
std::string Page(std::string_view title, std::string_view body);

}  // namespace oxbow::io
