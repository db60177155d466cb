// SPDX-License-Identifier: Apache-2.0
#include "io/report/svg_picture.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "io/report/chart_style.h"
#include "io/report/html.h"

namespace oxbow::io {
namespace {

constexpr int kChartWidth = 460, kChartHeight = 230;
constexpr int kGap = 18, kTitle = 34, kHead = 20, kLegendRow = 22;
constexpr int kLetter = 7;  // Width of a letter of the legend, about.
constexpr int kTitleLetter = 10, kTitleLine = 20;

constexpr char kTextRules[] = R"css(
.page{fill:var(--bg)}.title{fill:var(--ink);font:600 16px system-ui,sans-serif}
.head{fill:var(--ink);font:600 13px system-ui,sans-serif}
.name{fill:var(--soft);font:13px system-ui,sans-serif}.key{stroke:currentColor;stroke-width:3}
.dash .key{stroke-dasharray:6 4}
)css";

std::string StyleSheetOfPicture() {
  return absl::StrCat("svg{color-scheme:light dark;--bg:#fff;", kChartColours,
                      "}\n@media (prefers-color-scheme:dark){svg{--bg:#0d1117;",
                      kChartColoursInDark, "}}", kChartRules, kTextRules);
}

std::string TextAt(int x, int y, const char* style, const std::string& text) {
  return absl::StrFormat("<text class=\"%s\" x=\"%d\" y=\"%d\">%s</text>\n", style, x, y,
                         EscapeHtml(text));
}

// The title in as many lines as `width` needs. `y` moves on by all but the first one.
std::string Title(const std::string& title, int width, int& y) {
  std::vector<std::string> lines = {""};
  for (const absl::string_view word : absl::StrSplit(title, ' ')) {
    const size_t wide = (lines.back().size() + 1 + word.size()) * kTitleLetter;
    if (!lines.back().empty() && wide > static_cast<size_t>(width - 2 * kGap)) lines.emplace_back();
    absl::StrAppend(&lines.back(), lines.back().empty() ? "" : " ", word);
  }
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) {
    out += TextAt(kGap, 24 + kTitleLine * static_cast<int>(i), "title", lines[i]);
  }
  y += kTitleLine * static_cast<int>(lines.size() - 1);
  return out;
}

// The names of the lines beside a stroke of each, in as many rows as `width` needs. `y` moves on.
std::string PictureLegend(const std::vector<Series>& series, int width, int& y) {
  std::string out;
  int x = kGap;
  y += kLegendRow;
  for (size_t i = 0; i < series.size(); ++i) {
    const int wide = 34 + kLetter * static_cast<int>(series[i].name.size()) + kGap;
    if (x > kGap && x + wide > width) {
      x = kGap;
      y += kLegendRow;
    }
    absl::StrAppendFormat(&out,
                          "<g class=\"c%d%s\"><line class=\"key\" x1=\"%d\" x2=\"%d\" y1=\"%d\" "
                          "y2=\"%d\"/></g>",
                          i % kColours, i % 2 == 1 ? " dash" : "", x, x + 26, y - 4, y - 4);
    out += TextAt(x + 34, y, "name", series[i].name);
    x += wide;
  }
  return out;
}

}  // namespace

std::string SvgPicture(const std::string& title, const std::vector<PictureChart>& charts,
                       int columns) {
  OXBOW_CHECK(!charts.empty() && columns > 0) << charts.size() << " charts, " << columns;
  const int across = std::min(columns, static_cast<int>(charts.size()));
  const int width = across * (kChartWidth + kGap) + kGap;
  int y = kTitle;
  std::string body = Title(title, width, y);
  for (size_t i = 0; i < charts.size(); ++i) {
    const int column = static_cast<int>(i) % across;
    const int x = kGap + column * (kChartWidth + kGap);
    body += TextAt(x, y + 14, "head", charts[i].spec.title);
    if (std::any_of(charts[i].series.begin(), charts[i].series.end(), HasPoints)) {
      std::string drawing = Drawing(charts[i].spec, charts[i].series);
      drawing.insert(drawing.find("<svg") + 4,
                     absl::StrFormat(" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"", x, y + kHead,
                                     kChartWidth, kChartHeight));
      absl::StrAppend(&body, drawing, "\n");
    }
    if (column + 1 == across || i + 1 == charts.size()) y += kHead + kChartHeight + kGap;
  }
  body += PictureLegend(charts.front().series, width, y);
  const int height = y + kGap;
  return absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
      "height=\"%d\">\n<style>%s</style>\n<rect class=\"page\" width=\"%d\" height=\"%d\"/>\n%s"
      "</svg>\n",
      width, height, width, height, StyleSheetOfPicture(), width, height, body);
}

}  // namespace oxbow::io
