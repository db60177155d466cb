// SPDX-License-Identifier: Apache-2.0
#include "io/report/svg_picture.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "io/report/html.h"

namespace oxbow::io {
namespace {

constexpr int kChartWidth = 460, kChartHeight = 230;
constexpr int kGap = 18, kTitle = 34, kHead = 20, kLegendRow = 22;
constexpr int kLetter = 7;  // Width of a letter of the legend, about.

// What html.cc's style sheet says of drawings, with colours that an image file may have.
constexpr char kPictureStyle[] = R"css(
svg{color-scheme:light dark;--bg:#fff;--ink:#1d2126;--soft:#5d6670;--line:#e3e5e8;
--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#b0559a;--c4:#c08a00;--c5:#3d9fd6;--c6:#6b7480;
--c7:#8a5a3c}
@media (prefers-color-scheme:dark){svg{--bg:#0d1117;--ink:#e6e8ea;--soft:#9aa3ad;--line:#33383e;
--c0:#56b4e9;--c1:#f0863c;--c2:#2fc498;--c3:#d98ac6;--c4:#e6b422;--c5:#8fd0f5;--c6:#a5adb6;
--c7:#c49878}}
.page{fill:var(--bg)}.title{fill:var(--ink);font:600 16px system-ui,sans-serif}
.head{fill:var(--ink);font:600 13px system-ui,sans-serif}
.name{fill:var(--soft);font:13px system-ui,sans-serif}.key{stroke:currentColor;stroke-width:3}
.dash .key{stroke-dasharray:6 4}.grid{stroke:var(--line);stroke-width:1}
.axis{stroke:var(--soft);stroke-width:1}.mark{fill:var(--soft)}.cursor{visibility:hidden}
.tick{fill:var(--soft);font:11px system-ui,sans-serif}
.line{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
.area,.dot{fill:currentColor}.band{fill:currentColor;opacity:.18}.dash .line{stroke-dasharray:6 4}
.c0{color:var(--c0)}.c1{color:var(--c1)}.c2{color:var(--c2)}.c3{color:var(--c3)}
.c4{color:var(--c4)}.c5{color:var(--c5)}.c6{color:var(--c6)}.c7{color:var(--c7)}
)css";

std::string TextAt(int x, int y, const char* style, const std::string& text) {
  return absl::StrFormat("<text class=\"%s\" x=\"%d\" y=\"%d\">%s</text>\n", style, x, y,
                         EscapeHtml(text));
}

// The names of the lines beside a stroke of each, in as many rows as `width` needs. `y` moves on.
std::string Legend(const std::vector<Series>& series, int width, int& y) {
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
  std::string body = TextAt(kGap, 24, "title", title);
  int y = kTitle;
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
  body += Legend(charts.front().series, width, y);
  const int height = y + kGap;
  return absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
      "height=\"%d\">\n<style>%s</style>\n<rect class=\"page\" width=\"%d\" height=\"%d\"/>\n%s"
      "</svg>\n",
      width, height, width, height, kPictureStyle, width, height, body);
}

}  // namespace oxbow::io
