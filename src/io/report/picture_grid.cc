// SPDX-License-Identifier: Apache-2.0
#include "io/report/picture_grid.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "io/film.h"
#include "io/picture_file.h"
#include "io/report/html.h"
#include "io/report/svg_chart.h"

namespace oxbow::io {
namespace {

constexpr size_t kLongPrompt = 80;   // Bytes; more may take more than three lines.
constexpr size_t kUnfolded = 12;     // Large pictures that a grid shows at first.
constexpr size_t kTroubleShown = 8;  // Lines.

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

}  // namespace

std::string FolderOf(const Sheet& sheet) {
  return absl::StrCat("samples/", sheet.file.parent_path().filename().string(), "/");
}

bool IsLarge(const Sheet& sheet) {
  return sheet.shown() > 0 &&
         std::max(sheet.pictures[0].width, sheet.pictures[0].height) > kLargeSide;
}

bool AnyRight(const std::vector<PlacedSheet>& sheets) {
  return std::any_of(sheets.begin(), sheets.end(), [](const PlacedSheet& placed) {
    return std::any_of(placed.sheet->pictures.begin(), placed.sheet->pictures.end(),
                       [](const auto& picture) { return picture.right.value_or(false); });
  });
}

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

std::string Part(const PlacedSheet& placed, size_t place, size_t picture) {
  return absl::StrFormat(
      "<a class=\"part s%d p%d%s\" href=\"%s\" target=\"_blank\" aria-label=\"picture %d of step "
      "%d\"></a>",
      place, picture, placed.sheet->pictures[picture].frames > 1 ? " clip" : "",
      EscapeHtml(placed.folder + placed.sheet->pictures[picture].picture), picture,
      placed.sheet->step);
}

std::string PromptText(const std::string& prompt) {
  const std::string text = EscapeHtml(prompt);
  if (prompt.size() <= kLongPrompt)
    return absl::StrCat("<span class=\"prompt\" dir=\"auto\">", text, "</span>");
  return absl::StrCat("<details class=\"long\"><summary><span class=\"prompt\" dir=\"auto\">", text,
                      "</span></summary></details>");
}

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

std::string MoreButton(const Sheet& sheet) {
  if (!IsLarge(sheet) || sheet.shown() <= kUnfolded) return "";
  return absl::StrCat("<button type=\"button\" class=\"more\">Show all ", sheet.shown(),
                      " pictures</button>\n");
}

}  // namespace oxbow::io
