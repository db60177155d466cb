// SPDX-License-Identifier: Apache-2.0
#include "io/report/gallery.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "io/report/html.h"
#include "io/report/svg_chart.h"

namespace oxbow::io {
namespace {

constexpr size_t kColumnsMax = 5;  // Evaluations in a prompt's row.
constexpr size_t kRowsShown = 6;   // Best prompts, and as many of the worst.
constexpr size_t kRowsMax = 200;

// Whether both have pictures of the same prompts from the same noise at the same places.
bool SameLayout(const Sheet& a, const Sheet& b) {
  if (a.shown() != b.shown()) return false;
  if (a.shown() == 0) return a.width == b.width && a.height == b.height;
  for (size_t i = 0; i < a.shown(); ++i) {
    const EvaluatedPicture &one = a.pictures[i], &other = b.pictures[i];
    if (one.prompt != other.prompt || one.seed != other.seed || one.group != other.group ||
        one.sample != other.sample || one.width != other.width || one.height != other.height) {
      return false;
    }
  }
  return true;
}

std::string Strip(const std::vector<PlacedSheet>& sheets) {
  std::string out = "<div class=\"strip\">";
  for (size_t i = 0; i < sheets.size(); ++i) {
    absl::StrAppendFormat(&out,
                          "<button type=\"button\" data-sheet=\"%d\"><i class=\"sheet s%d\"></i>"
                          "<span>%d</span></button>",
                          i, i, sheets[i].sheet->step);
  }
  return out + "</div>\n";
}

// Two names for the grids. Only step 0 is before training.
struct GridNames {
  const char* first;
  const char* last;
};

GridNames NamesOf(const Sheet& first) {
  return first.step == 0 ? GridNames{"Before", "After"} : GridNames{"First", "Last"};
}

// The slider, and which of the two grids a narrow screen shows. The grids follow it.
std::string Controls(size_t last, const GridNames& names) {
  return absl::StrCat(
      "<div class=\"slide\"><button type=\"button\" id=\"play\" "
      "aria-label=\"play\">&#9654;</button>"
      "<input type=\"range\" id=\"slider\" min=\"0\" max=\"",
      last, "\" value=\"", last,
      "\" aria-label=\"evaluation\"></div>\n"
      "<input type=\"radio\" name=\"when\" id=\"when0\"><label for=\"when0\">",
      names.first,
      "</label><input type=\"radio\" name=\"when\" id=\"when1\" checked><label for=\"when1\">",
      names.last, "</label>\n");
}

// Rewards of one prompt: the mean over its scored pictures at each evaluation; NaN if none is.
struct PromptRow {
  std::string prompt;
  size_t place = 0;  // Its first picture on the sheets.
  double first = 0;
  double last = 0;
  int pictures = 0;  // With a score, in the last evaluation.
};

struct PromptMean {
  double value = 0;  // NaN of no picture.
  int pictures = 0;
};

std::map<std::string, PromptMean> MeansOf(const Sheet& sheet) {
  std::map<std::string, std::pair<double, int>> sums;
  for (const EvaluatedPicture& picture : sheet.pictures) {
    auto& [sum, count] = sums[picture.prompt];
    if (std::isnan(picture.reward)) continue;
    sum += picture.reward;
    ++count;
  }
  std::map<std::string, PromptMean> means;
  for (const auto& [prompt, sum] : sums) means[prompt] = {sum.first / sum.second, sum.second};
  return means;
}

// Worst first; those without a score come before all.
std::vector<PromptRow> RowsOf(const std::vector<PlacedSheet>& sheets) {
  const Sheet& last = *sheets.back().sheet;
  const auto before = MeansOf(*sheets.front().sheet), after = MeansOf(last);
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < last.shown(); ++i) places.emplace(last.pictures[i].prompt, i);
  std::vector<PromptRow> rows;
  for (const auto& [prompt, place] : places) {
    const auto first = before.find(prompt);
    const PromptMean& mean = after.at(prompt);
    rows.push_back({prompt, place, first == before.end() ? std::nan("") : first->second.value,
                    mean.value, mean.pictures});
  }
  std::stable_sort(rows.begin(), rows.end(), [](const PromptRow& a, const PromptRow& b) {
    return std::isnan(a.last) ? !std::isnan(b.last) : a.last < b.last;
  });
  if (rows.size() > kRowsMax) rows.erase(rows.begin() + kRowsMax / 2, rows.end() - kRowsMax / 2);
  return rows;
}

// The evaluations that a prompt's row shows.
std::vector<size_t> ColumnsOf(size_t sheets) {
  std::vector<size_t> columns;
  const size_t count = std::min(sheets, kColumnsMax);
  for (size_t i = 0; i < count; ++i) {
    columns.push_back(count == 1 ? 0 : i * (sheets - 1) / (count - 1));
  }
  return columns;
}

// "of 1 picture", "mean of 2 to 4 pictures": what the rewards of these rows are.
std::string PicturesBehind(std::vector<PromptRow>::const_iterator row,
                           std::vector<PromptRow>::const_iterator end) {
  const auto [least, most] = std::minmax_element(
      row, end, [](const PromptRow& a, const PromptRow& b) { return a.pictures < b.pictures; });
  if (most->pictures == 1) return "of 1 picture";
  return absl::StrCat("mean of ", least->pictures,
                      least->pictures == most->pictures ? "" : absl::StrCat(" to ", most->pictures),
                      " pictures");
}

std::string Table(const std::vector<PlacedSheet>& sheets, const std::vector<size_t>& columns,
                  std::vector<PromptRow>::const_iterator row,
                  std::vector<PromptRow>::const_iterator end) {
  std::string out =
      absl::StrCat("<div class=\"wide\"><table class=\"prompts",
                   IsLarge(*sheets.back().sheet) ? " big" : "", "\"><tr><th>prompt</th>");
  for (const size_t column : columns) {
    absl::StrAppend(&out, "<th>", sheets[column].sheet->step, "</th>");
  }
  absl::StrAppend(&out, "<th>reward, ", PicturesBehind(row, end), "</th></tr>\n");
  for (; row != end; ++row) {
    absl::StrAppend(&out, "<tr><td>", PromptText(row->prompt), "</td>");
    for (const size_t column : columns) {
      absl::StrAppend(&out, "<td>", Part(sheets[column], column, row->place), "</td>");
    }
    absl::StrAppend(&out, "<td>", std::isnan(row->first) ? "" : Number(row->first), " &rarr; <b>",
                    std::isnan(row->last) ? "no score" : Number(row->last), "</b></td></tr>\n");
  }
  return out + "</table></div>\n";
}

std::string Prompts(const std::vector<PlacedSheet>& sheets) {
  const std::vector<size_t> columns = ColumnsOf(sheets.size());
  const std::vector<PromptRow> rows = RowsOf(sheets);
  if (rows.empty()) return "";
  const auto part = static_cast<std::ptrdiff_t>(std::min(kRowsShown, (rows.size() + 1) / 2));
  std::string out =
      absl::StrCat("<h2>Prompts over the steps</h2><div class=\"",
                   IsLarge(*sheets.back().sheet) ? "stack" : "pair",
                   "\"><figure><h3>Lowest reward at the end</h3>",
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

// The sheets that can be shown at the same places as the last one, each as large as it is shown.
std::vector<PlacedSheet> Placed(const std::vector<Sheet>& all) {
  const auto last =
      std::find_if(all.rbegin(), all.rend(), [](const auto& s) { return s.visible(); });
  std::vector<PlacedSheet> sheets;
  for (const Sheet& sheet : all) {
    if (last == all.rend() || !sheet.visible() || !SameLayout(sheet, *last)) continue;
    sheets.push_back({.sheet = &sheet, .size = SpriteSize::kSmall, .folder = FolderOf(sheet)});
  }
  for (const size_t column : ColumnsOf(sheets.size())) sheets[column].size = SpriteSize::kMiddle;
  if (!sheets.empty()) sheets.front().size = sheets.back().size = SpriteSize::kLarge;
  return sheets;
}

std::string HowToLook(const Sheet& sheet) {
  if (sheet.shown() == 0 || sheet.pictures[0].frames == 1) {
    return "A click shows a picture at full size.";
  }
  return "These are videos; where one stands still, it is at its first frame. A click plays it.";
}

std::string None(std::string_view says) {
  return absl::StrCat("<p class=\"none\">", EscapeHtml(says), "</p>\n");
}

}  // namespace

std::string Gallery(const std::vector<Sheet>& all, const SheetSource& source, bool live,
                    const std::string& failure) {
  std::vector<PlacedSheet> sheets = Placed(all);
  const bool marked = AnyRight(sheets);
  for (PlacedSheet& placed : sheets) placed.marked = marked;
  const GridNames names =
      sheets.empty() ? GridNames{"Before", "After"} : NamesOf(*sheets.front().sheet);
  std::string out = absl::StrCat(
      "<h2>", names.first, " and ", absl::AsciiStrToLower(names.last),
      "</h2><p class=\"lead\">The same held-out prompts and the same noise at every evaluation. ",
      sheets.empty() ? "" : HowToLook(*sheets.back().sheet));
  std::vector<std::string> trouble;
  for (const Sheet& sheet : all) {
    trouble.insert(trouble.end(), sheet.trouble.begin(), sheet.trouble.end());
  }
  if (sheets.empty()) {
    const std::string why = !all.empty()       ? "The pictures cannot be read."
                            : !failure.empty() ? absl::StrCat("No pictures: ", failure)
                            : live             ? "No pictures yet."
                                               : "No pictures: the run made no evaluation.";
    return absl::StrCat(out, "</p>", None(why), TroubleLines(trouble));
  }
  if (marked) out += " &#10003; and a green frame: what was asked for, in full.";
  out += "</p>\n";
  if (const size_t others = all.size() - sheets.size(); others > 0) {
    out += None(absl::StrCat(others, others == 1 ? " evaluation is" : " evaluations are",
                             " not among them: other prompts, another size, or files that cannot "
                             "be read. See samples/ in the run's directory."));
  }
  const size_t last = sheets.size() - 1;
  out += PlaceSheets(sheets, source, std::move(trouble));
  if (sheets.size() > 2) out += Strip(sheets);
  if (last > 0) out += Controls(last, names);
  absl::StrAppend(&out, "<div class=\"pair views\">",
                  View(sheets.front(), 0, absl::StrCat(names.first, ": ")));
  if (last > 0) out += View(sheets.back(), last, absl::StrCat(names.last, ": "));
  return absl::StrCat(out, "</div>\n", MoreButton(*sheets.back().sheet), Prompts(sheets));
}

std::string GalleryOfRuns(const std::vector<RunPictures>& runs, const SheetSource& source) {
  if (runs.empty()) return "";
  std::vector<PlacedSheet> sheets;
  std::vector<std::string> trouble;
  for (const RunPictures& run : runs) {
    sheets.push_back({.sheet = &run.last, .folder = run.folder});
    sheets.back().marked = AnyRight({sheets.back()});
    for (const std::string& line : run.last.trouble) {
      trouble.push_back(absl::StrCat(run.name, ", ", line));
    }
  }
  std::string out =
      absl::StrCat("<section><h2>Last pictures</h2><p class=\"lead\">",
                   HowToLook(runs.front().last), " Beside it are those of the other runs.</p>\n",
                   PlaceSheets(sheets, source, std::move(trouble)), "<div class=\"pair\">");
  const Sheet* longest = &runs.front().last;
  for (size_t i = 0; i < runs.size(); ++i) {
    out += View(sheets[i], i, absl::StrCat(runs[i].name, ": "));
    if (runs[i].last.shown() > longest->shown()) longest = &runs[i].last;
  }
  return absl::StrCat(out, "</div>\n", MoreButton(*longest), "</section>\n");
}

}  // namespace oxbow::io
