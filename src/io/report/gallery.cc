// SPDX-License-Identifier: Apache-2.0
#include "io/report/gallery.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "io/film.h"
#include "io/picture_file.h"
#include "io/report/html.h"
#include "io/report/svg_chart.h"

namespace oxbow::io {

namespace {

constexpr int kLargeSide = 128;      // Pictures above this are shown large.
constexpr size_t kLongPrompt = 80;   // Bytes; more may take more than three lines.
constexpr size_t kUnfolded = 12;     // Large pictures that a grid shows at first.
constexpr size_t kTroubleShown = 8;  // Lines.
constexpr size_t kColumnsMax = 5;    // Evaluations in a prompt's row.
constexpr size_t kRowsShown = 6;     // Best prompts, and as many of the worst.
constexpr size_t kRowsMax = 200;

// A sheet at a place on a page.
struct PlacedSheet {
  const Sheet* sheet;
  SpriteSize size = SpriteSize::kLarge;
  std::string folder;   // Its files as seen from the page, with a slash at its end.
  bool marked = false;  // Marks say right or wrong in place of the reward.
};

// The background of a sheet, and how many pictures it has in each direction.
std::string StyleOf(const PlacedSheet& placed, size_t place, const std::string& address) {
  const Sheet& sheet = *placed.sheet;
  const auto shown = static_cast<int>(sheet.shown());
  const int columns = std::clamp(shown, 1, kSpriteColumns), rows = std::max(1, (shown + 7) / 8);
  const int width = shown > 0 ? sheet.pictures[0].width : sheet.width;
  const int height = shown > 0 ? sheet.pictures[0].height : sheet.height;
  return absl::StrFormat(
      ".s%d{background-image:url(%s);--columns:%d;--rows:%d;--one:%d/%d;--whole:%d/%d}\n", place,
      address, columns, rows, width, height, columns * width, rows * height);
}

// Percentages, so that they hold at every size.
std::string PartStyles(size_t count) {
  std::string css;
  for (size_t i = 0; i < count; ++i) {
    absl::StrAppendFormat(&css, ".p%d{--x:%d;--y:%d}\n", i, i % kSpriteColumns, i / kSpriteColumns);
  }
  return css;
}

std::string RewardOf(const EvaluatedPicture& picture) {
  return std::isnan(picture.reward) ? "no score" : Number(picture.reward);
}

// "right" and "wrong" by a sign as well as by the colour of the frame.
std::string MarkOf(const EvaluatedPicture& picture, bool marked) {
  if (!marked || !picture.right) return RewardOf(picture);
  return *picture.right ? "\xe2\x9c\x93" : "\xe2\x9c\x95";  // U+2713, U+2715.
}

const char* MarkClass(const EvaluatedPicture& picture, bool marked) {
  if (!marked || !picture.right) return "cell";
  return *picture.right ? "cell ok" : "cell no";
}

std::string NoiseOf(const EvaluatedPicture& picture) {
  return absl::StrCat("seed ", picture.seed, ", noise ", picture.group, ", picture ",
                      picture.sample);
}

// How much of a video its file or film has; "" of a picture.
std::string LengthOf(const EvaluatedPicture& picture) {
  if (picture.frames < 2) return "";
  const bool whole = picture.film.empty()
                         ? IsWholeFilm(picture.width, picture.height, picture.frames)
                         : picture.film_frames >= picture.frames;
  if (whole) return absl::StrCat(picture.frames, " frames");
  if (picture.film.empty()) return absl::StrCat("the first of ", picture.frames, " frames");
  return absl::StrCat(picture.film_frames, " of ", picture.frames, " frames");
}

// The film that a page plays: its file, the frames on it, and the seconds that they are shown.
nlohmann::ordered_json FilmOf(const EvaluatedPicture& picture) {
  if (picture.film.empty()) return nullptr;
  constexpr FrameTime kTime;
  return nlohmann::ordered_json::array(
      {picture.film, picture.film_frames,
       1.0 * picture.frames * kTime.numerator / kTime.denominator});
}

// The data that the script needs: of each sheet its step, caption, files, noises, sizes, lengths
// and films of videos, marks, and the rewards in the order of `names`. Lists that are those of the
// first sheet are left out.
std::string Data(const std::vector<PlacedSheet>& sheets) {
  using Json = nlohmann::ordered_json;
  std::set<std::string> names;
  for (const PlacedSheet& placed : sheets) {
    for (const EvaluatedPicture& picture : placed.sheet->pictures) {
      for (const auto& [name, value] : picture.rewards) names.insert(name);
    }
  }
  Json data = {{"names", names}, {"sheets", Json::array()}};
  Json first;
  for (const PlacedSheet& placed : sheets) {
    Json files = Json::array(), noises = Json::array(), sizes = Json::array();
    Json lengths = Json::array(), films = Json::array();
    Json marks = Json::array(), values = Json::array();
    for (size_t i = 0; i < placed.sheet->shown(); ++i) {
      const EvaluatedPicture& picture = placed.sheet->pictures[i];
      files.push_back(picture.picture);
      noises.push_back(NoiseOf(picture));
      sizes.push_back({picture.width, picture.height});
      lengths.push_back(LengthOf(picture));
      films.push_back(FilmOf(picture));
      marks.push_back(MarkOf(picture, placed.marked));
      Json row = {RewardOf(picture)};
      for (const std::string& name : names) {
        const auto found = picture.rewards.find(name);
        row.push_back(found == picture.rewards.end() ? Json(nullptr) : Json(Number(found->second)));
      }
      values.push_back(std::move(row));
    }
    Json one = {{"step", placed.sheet->step},
                {"caption", placed.sheet->caption},
                {"folder", placed.folder},
                {"marks", std::move(marks)},
                {"values", std::move(values)}};
    const Json same = {{"files", std::move(files)},
                       {"noises", std::move(noises)},
                       {"sizes", std::move(sizes)},
                       {"lengths", std::move(lengths)},
                       {"films", std::move(films)}};
    if (first.is_null()) first = same;
    if (same != first || data["sheets"].empty()) one.update(same);
    data["sheets"].push_back(std::move(one));
  }
  const std::string json = data.dump(-1, ' ', false, Json::error_handler_t::replace);
  // A caption must not end the element.
  return absl::StrCat("<script type=\"application/json\" id=\"sheets\">",
                      absl::StrReplaceAll(json, {{"<", "\\u003c"}}), "</script>\n");
}

// "samples/step_000010/"
std::string FolderOf(const Sheet& sheet) {
  return absl::StrCat("samples/", sheet.file.parent_path().filename().string(), "/");
}

bool IsLarge(const Sheet& sheet) {
  return sheet.shown() > 0 &&
         std::max(sheet.pictures[0].width, sheet.pictures[0].height) > kLargeSide;
}

// Whether some picture is right: those of this run's reward can be.
bool AnyRight(const std::vector<PlacedSheet>& sheets) {
  return std::any_of(sheets.begin(), sheets.end(), [](const PlacedSheet& placed) {
    return std::any_of(placed.sheet->pictures.begin(), placed.sheet->pictures.end(),
                       [](const auto& picture) { return picture.right.value_or(false); });
  });
}

// A line for each thing that cannot be shown.
std::string TroubleLines(const std::vector<std::string>& trouble) {
  if (trouble.empty()) return "";
  std::string out = "<ul class=\"trouble\" role=\"alert\">";
  for (size_t i = 0; i < std::min(trouble.size(), kTroubleShown); ++i) {
    absl::StrAppend(&out, "<li>cannot be shown: ", EscapeHtml(trouble[i]), "</li>");
  }
  if (trouble.size() > kTroubleShown) {
    absl::StrAppend(&out, "<li>and ", trouble.size() - kTroubleShown, " more</li>");
  }
  return out + "</ul>\n";
}

// The style of the sheets, the data that the page's script needs, and the lines of `trouble` and of
// what the source has found. Their grids follow it.
std::string PlaceSheets(const std::vector<PlacedSheet>& sheets, const SheetSource& source,
                        std::vector<std::string> trouble) {
  std::string css;
  size_t shown = 0;
  for (size_t i = 0; i < sheets.size(); ++i) {
    SheetImage image = source(*sheets[i].sheet, sheets[i].size);
    css += StyleOf(sheets[i], i, image.address);
    shown = std::max(shown, sheets[i].sheet->shown());
    std::move(image.trouble.begin(), image.trouble.end(), std::back_inserter(trouble));
  }
  return absl::StrCat("<style>", css, PartStyles(shown), "</style>\n", Data(sheets),
                      TroubleLines(trouble));
}

// A picture alone, of sheet `place`.
std::string Part(const PlacedSheet& placed, size_t place, size_t picture) {
  return absl::StrFormat(
      "<a class=\"part s%d p%d%s\" href=\"%s\" target=\"_blank\" aria-label=\"picture %d of step "
      "%d\"></a>",
      place, picture, placed.sheet->pictures[picture].frames > 1 ? " clip" : "",
      EscapeHtml(placed.folder + placed.sheet->pictures[picture].picture), picture,
      placed.sheet->step);
}

// A figure with the pictures of sheet `place`, each with its prompt and mark; or the whole sheet.
// `heading` is text.
std::string View(const PlacedSheet& placed, size_t place, std::string_view heading) {
  const Sheet& sheet = *placed.sheet;
  std::string out =
      absl::StrCat("<figure class=\"view\" data-sheet=\"", place, "\"><h3>", EscapeHtml(heading),
                   "step <span class=\"at\">", sheet.step, "</span></h3>");
  if (!sheet.visible()) {
    out += "<p class=\"none\">The pictures cannot be read.</p>";
  } else if (sheet.shown() == 0) {
    absl::StrAppendFormat(
        &out, "<div class=\"sheet s%d\" role=\"img\" aria-label=\"pictures of step %d\"></div>",
        place, sheet.step);
  } else {
    absl::StrAppend(&out, "<div class=\"cells", IsLarge(sheet) ? " big" : "", "\">");
    for (size_t i = 0; i < sheet.shown(); ++i) {
      const EvaluatedPicture& picture = sheet.pictures[i];
      absl::StrAppend(&out, "<div class=\"", MarkClass(picture, placed.marked), "\">",
                      Part(placed, place, i), PromptText(picture.prompt), "<b>",
                      MarkOf(picture, placed.marked), "</b></div>");
    }
    out += "</div>";
  }
  return absl::StrCat(out, "<figcaption>", EscapeHtml(sheet.caption), " <a class=\"whole\" href=\"",
                      EscapeHtml(placed.folder), "eval.png\" target=\"_blank\">contact sheet</a>",
                      "</figcaption></figure>\n");
}

// The button that shows what the grids keep folded; "" where nothing is.
std::string MoreButton(const Sheet& sheet) {
  if (!IsLarge(sheet) || sheet.shown() <= kUnfolded) return "";
  return absl::StrCat("<button type=\"button\" class=\"more\">Show all ", sheet.shown(),
                      " pictures</button>\n");
}

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

std::string PromptText(const std::string& prompt) {
  const std::string text = EscapeHtml(prompt);
  if (prompt.size() <= kLongPrompt)
    return absl::StrCat("<span class=\"prompt\" dir=\"auto\">", text, "</span>");
  return absl::StrCat("<details class=\"long\"><summary><span class=\"prompt\" dir=\"auto\">", text,
                      "</span></summary></details>");
}

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
