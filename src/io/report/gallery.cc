// SPDX-License-Identifier: Apache-2.0
#include "io/report/gallery.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "io/report/html.h"
#include "io/report/svg_chart.h"

namespace oxbow::io {
namespace {

constexpr size_t kColumnsMax = 5;  // Evaluations in a prompt's row.
constexpr size_t kRowsShown = 6;   // Best prompts, and as many of the worst.
constexpr size_t kRowsMax = 200;

// Whether pictures of both sheets are at the same places.
bool SameLayout(const Sheet& a, const Sheet& b) {
  if (a.width != b.width || a.height != b.height || a.shown() != b.shown()) return false;
  for (size_t i = 0; i < a.shown(); ++i) {
    if (a.pictures[i].prompt != b.pictures[i].prompt) return false;
  }
  return true;
}

bool AnyRight(const std::vector<Sheet>& sheets) {
  for (const Sheet& sheet : sheets) {
    for (const EvaluatedPicture& picture : sheet.pictures) {
      if (picture.right.value_or(false)) return true;
    }
  }
  return false;
}

// The background of each sheet, and the place of each picture. Percentages, so that they hold at
// every size.
std::string Styles(const std::vector<Sheet>& sheets, const SheetSource& source) {
  std::string css;
  for (size_t i = 0; i < sheets.size(); ++i) {
    const bool large = i == 0 || i + 1 == sheets.size();
    absl::StrAppend(&css, ".s", i, "{background-image:url(", source(sheets[i], large), ")}\n");
  }
  const Sheet& sheet = sheets.back();
  absl::StrAppendFormat(&css, ".sheet{aspect-ratio:%d/%d}\n", sheet.width, sheet.height);
  for (size_t i = 0; i < sheet.shown(); ++i) {
    const Box box = sheet.BoxOf(i);
    if (i == 0) {
      absl::StrAppendFormat(&css, ".part{aspect-ratio:%.0f/%.0f;background-size:%.4f%% %.4f%%}\n",
                            box.width, box.height, 100 * sheet.width / box.width,
                            100 * sheet.height / box.height);
    }
    absl::StrAppendFormat(&css, ".p%d{background-position:%.4f%% %.4f%%}\n", i,
                          100 * box.x / std::max(1.0, sheet.width - box.width),
                          100 * box.y / std::max(1.0, sheet.height - box.height));
  }
  return absl::StrCat("<style>", css, "</style>\n");
}

// "right" and "wrong" by a sign as well as by the colour of the frame.
std::string MarkOf(const EvaluatedPicture& picture, bool strict) {
  if (!strict || !picture.right) return Number(picture.reward);
  return *picture.right ? "\xe2\x9c\x93" : "\xe2\x9c\x95";  // U+2713, U+2715.
}

std::string Whole(const Sheet& sheet, size_t place) {
  return absl::StrFormat(
      "<div class=\"sheet s%d\" role=\"img\" aria-label=\"pictures of step %d\"></div>", place,
      sheet.step);
}

// The pictures of one sheet, each with its prompt and mark; they flow into the width there is.
std::string Cells(const Sheet& sheet, size_t place, bool strict) {
  std::string out = absl::StrFormat("<div class=\"cells\" data-sheet=\"%d\">", place);
  for (size_t i = 0; i < sheet.shown(); ++i) {
    const EvaluatedPicture& picture = sheet.pictures[i];
    absl::StrAppendFormat(
        &out,
        "<div title=\"%s\"><i class=\"part s%d p%d\" role=\"img\" aria-label=\"%s\"></i>"
        "<span>%s</span><b>%s</b></div>",
        EscapeHtml(picture.prompt), place, i, EscapeHtml(picture.prompt),
        EscapeHtml(picture.prompt), MarkOf(picture, strict));
  }
  return out + "</div>";
}

std::string View(const Sheet& sheet, size_t place, std::string_view heading, bool strict,
                 std::string_view more) {
  return absl::StrCat(
      "<figure class=\"view\"><h3>", std::string(heading), "step <span class=\"at\">", sheet.step,
      "</span></h3>", sheet.shown() > 0 ? Cells(sheet, place, strict) : Whole(sheet, place),
      "<figcaption>", EscapeHtml(sheet.caption), "</figcaption>", std::string(more), "</figure>\n");
}

// What the script needs to show another sheet: steps, captions and marks.
std::string Data(const std::vector<Sheet>& sheets, bool strict) {
  nlohmann::json rows = nlohmann::json::array();
  for (const Sheet& sheet : sheets) {
    nlohmann::json marks = nlohmann::json::array();
    for (size_t i = 0; i < sheet.shown(); ++i) marks.push_back(MarkOf(sheet.pictures[i], strict));
    rows.push_back({sheet.step, sheet.caption, marks});
  }
  const std::string json = rows.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  // A caption must not end the element.
  return absl::StrCat("<script type=\"application/json\" id=\"sheets\">",
                      absl::StrReplaceAll(json, {{"<", "\\u003c"}}), "</script>\n");
}

std::string Strip(const std::vector<Sheet>& sheets) {
  std::string out = "<div class=\"strip\">";
  for (size_t i = 0; i < sheets.size(); ++i) {
    absl::StrAppendFormat(&out,
                          "<button type=\"button\" data-sheet=\"%d\"><i class=\"sheet s%d\"></i>"
                          "<span>%d</span></button>",
                          i, i, sheets[i].step);
  }
  return out + "</div>\n";
}

// Rewards of one prompt: the mean over its pictures at each evaluation.
struct PromptRow {
  std::string prompt;
  size_t place = 0;  // Its first picture on the sheets.
  double first = 0;
  double last = 0;
};

std::map<std::string, double> MeansOf(const Sheet& sheet) {
  std::map<std::string, std::pair<double, int>> sums;
  for (const EvaluatedPicture& picture : sheet.pictures) {
    auto& [sum, count] = sums[picture.prompt];
    sum += picture.reward;
    ++count;
  }
  std::map<std::string, double> means;
  for (const auto& [prompt, sum] : sums) means[prompt] = sum.first / sum.second;
  return means;
}

// Worst first; those whose reward is not a number come before all.
std::vector<PromptRow> RowsOf(const std::vector<Sheet>& sheets) {
  const Sheet& last = sheets.back();
  const auto before = MeansOf(sheets.front()), after = MeansOf(last);
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < last.shown(); ++i) places.emplace(last.pictures[i].prompt, i);
  std::vector<PromptRow> rows;
  for (const auto& [prompt, place] : places) {
    const auto first = before.find(prompt);
    rows.push_back(
        {prompt, place, first == before.end() ? std::nan("") : first->second, after.at(prompt)});
  }
  std::stable_sort(rows.begin(), rows.end(), [](const PromptRow& a, const PromptRow& b) {
    return std::isnan(a.last) ? !std::isnan(b.last) : a.last < b.last;
  });
  if (rows.size() > kRowsMax) rows.erase(rows.begin() + kRowsMax / 2, rows.end() - kRowsMax / 2);
  return rows;
}

std::string Table(const std::vector<Sheet>& sheets, const std::vector<size_t>& columns,
                  std::vector<PromptRow>::const_iterator row,
                  std::vector<PromptRow>::const_iterator end) {
  std::string out = "<div class=\"wide\"><table class=\"prompts\"><tr><th>prompt</th>";
  for (const size_t column : columns) absl::StrAppend(&out, "<th>", sheets[column].step, "</th>");
  out += "<th>reward</th></tr>\n";
  for (; row != end; ++row) {
    absl::StrAppend(&out, "<tr><td>", EscapeHtml(row->prompt), "</td>");
    for (const size_t column : columns) {
      absl::StrAppendFormat(&out, "<td><i class=\"part s%d p%d\"></i></td>", column, row->place);
    }
    absl::StrAppend(&out, "<td>", std::isnan(row->first) ? "" : Number(row->first), " &rarr; <b>",
                    Number(row->last), "</b></td></tr>\n");
  }
  return out + "</table></div>\n";
}

std::string Prompts(const std::vector<Sheet>& sheets) {
  std::vector<size_t> columns;
  const size_t count = std::min(sheets.size(), kColumnsMax);
  for (size_t i = 0; i < count; ++i) {
    columns.push_back(count == 1 ? 0 : i * (sheets.size() - 1) / (count - 1));
  }
  const std::vector<PromptRow> rows = RowsOf(sheets);
  if (rows.empty()) return "";
  const auto part = static_cast<std::ptrdiff_t>(std::min(kRowsShown, (rows.size() + 1) / 2));
  std::string out = absl::StrCat(
      "<h2>Prompts over the steps</h2><div class=\"pair\"><figure><h3>Lowest "
      "reward at the end</h3>",
      Table(sheets, columns, rows.begin(), rows.begin() + part), "</figure>");
  if (rows.size() > 1) {
    absl::StrAppend(&out, "<figure><h3>Highest</h3>",
                    Table(sheets, columns, rows.end() - part, rows.end()), "</figure>");
  }
  absl::StrAppend(&out, "</div>\n");
  if (rows.size() <= 2 * kRowsShown) return out;
  return absl::StrCat(out, "<details><summary>All ", rows.size(),
                      " prompts, the lowest reward first"
                      "</summary>",
                      Table(sheets, columns, rows.begin(), rows.end()), "</details>\n");
}

}  // namespace

std::string Gallery(const std::vector<Sheet>& all, const SheetSource& source, bool live) {
  std::string out =
      "<h2>Before and after</h2><p class=\"lead\">The same held-out prompts and the same "
      "noise at every evaluation.";
  if (all.empty()) {
    return absl::StrCat(out, "</p><p class=\"none\">",
                        live ? "No pictures yet." : "No pictures: the run made no evaluation.",
                        "</p>\n");
  }
  std::vector<Sheet> sheets;  // Others cannot be shown in the same places.
  for (const Sheet& sheet : all) {
    if (SameLayout(sheet, all.back())) sheets.push_back(sheet);
  }
  const bool strict = AnyRight(sheets);
  if (strict) out += " &#10003; and a green frame: what was asked for, in full.";
  absl::StrAppend(&out, "</p>\n", Styles(sheets, source), Data(sheets, strict),
                  "<div class=\"pair\">", View(sheets.front(), 0, "Before: ", strict, ""));
  if (sheets.size() > 1) {
    const size_t last = sheets.size() - 1;
    out += View(
        sheets.back(), last, "After: ", strict,
        absl::StrCat("<div class=\"slide\"><button type=\"button\" id=\"play\" aria-label=\"play\">"
                     "&#9654;</button><input type=\"range\" id=\"slider\" min=\"0\" max=\"",
                     last, "\" value=\"", last, "\" aria-label=\"evaluation\"></div>"));
  }
  out += "</div>\n";
  if (sheets.size() > 2) out += Strip(sheets);
  return out + Prompts(sheets);
}

}  // namespace oxbow::io
