// SPDX-License-Identifier: Apache-2.0
#include "core/reward/geneval_prompt.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/json.h"
#include "base/nearest_name.h"
#include "base/status_macros.h"

namespace oxbow::reward {
namespace {

using Json = nlohmann::json;
using ClassNames = absl::Span<const char* const>;

// clang-format off
constexpr const char* kThings[] = {
    "person", "bicycle", "car", "motorcycle", "airplane", "bus", "train", "truck", "boat",
    "traffic light", "fire hydrant", "stop sign", "parking meter", "bench", "bird", "cat", "dog",
    "horse", "sheep", "cow", "elephant", "bear", "zebra", "giraffe", "backpack", "umbrella",
    "handbag", "tie", "suitcase", "frisbee", "skis", "snowboard", "sports ball", "kite",
    "baseball bat", "baseball glove", "skateboard", "surfboard", "tennis racket", "bottle",
    "wine glass", "cup", "fork", "knife", "spoon", "bowl", "banana", "apple", "sandwich", "orange",
    "broccoli", "carrot", "hot dog", "pizza", "donut", "cake", "chair", "couch", "potted plant",
    "bed", "dining table", "toilet", "tv", "laptop", "computer mouse", "tv remote",
    "computer keyboard", "cell phone", "microwave", "oven", "toaster", "sink", "refrigerator",
    "book", "clock", "vase", "scissors", "teddy bear", "hair drier", "toothbrush"};
// clang-format on
constexpr const char* kColours[] = {"red",    "orange", "yellow", "green", "blue",
                                    "purple", "pink",   "brown",  "black", "white"};
constexpr const char* kRelations[] = {"left of", "right of", "above", "below"};

constexpr int64_t kCountMax = 1000;
constexpr size_t kEntriesMax = 100;

// Parts of metadata in messages: UTF-8 or not, and never long.
std::string Shown(const Json& value) { return JsonText(value).substr(0, 80); }

absl::Status Wrong(const std::string& place, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("the prompt's metadata: ", place, ": ", what));
}

// Index of the string at `key`.
absl::StatusOr<int> NameAt(const Json& entry, const char* key, ClassNames names,
                           const std::string& place) {
  const auto found = entry.find(key);
  const std::string name =
      found != entry.end() && found->is_string() ? found->get<std::string>() : "";
  const auto* const known = std::find(names.begin(), names.end(), name);
  if (known != names.end()) return static_cast<int>(known - names.begin());
  if (name.empty()) return Wrong(place, absl::StrCat("`", key, "` is not a name"));
  const std::string nearest =
      NearestName(name.substr(0, 80), std::vector<std::string>(names.begin(), names.end()));
  return Wrong(place, absl::StrCat("unknown ", key, " ", Shown(*found),
                                   nearest.empty() ? "" : ": did you mean `" + nearest + "`?"));
}

absl::StatusOr<GenevalPosition> PositionOf(const Json& position, size_t entry,
                                           const std::string& place) {
  if (!position.is_array() || position.size() != 2 || !position[0].is_string() ||
      !position[1].is_number_integer()) {
    return Wrong(place, absl::StrCat("`position` is [relation, entry], got ", Shown(position)));
  }
  const auto relation =
      std::find(std::begin(kRelations), std::end(kRelations), position[0].get<std::string>());
  if (relation == std::end(kRelations)) {
    return Wrong(place, absl::StrCat("a relation is one of ", absl::StrJoin(kRelations, ", "),
                                     ", got ", Shown(position[0])));
  }
  if (position[1] < 0 || position[1] >= entry) {
    return Wrong(place, absl::StrCat("a position is relative to an earlier entry, got ",
                                     Shown(position[1])));
  }
  return GenevalPosition{.relation = static_cast<int>(relation - std::begin(kRelations)),
                         .target = position[1].get<size_t>()};
}

absl::StatusOr<GenevalDemand> DemandOf(const Json& entry, size_t index, const std::string& place) {
  if (!entry.is_object()) return Wrong(place, "not a JSON object");
  GenevalDemand demand;
  OXBOW_ASSIGN_OR_RETURN(demand.thing, NameAt(entry, "class", kThings, place));
  const auto count = entry.find("count");
  if (count == entry.end() || !count->is_number_integer() || *count < 1 || *count > kCountMax) {
    return Wrong(place, absl::StrCat("`count` is 1..", kCountMax, ", got ",
                                     count == entry.end() ? "none" : Shown(*count)));
  }
  demand.count = count->get<int64_t>();
  if (entry.contains("color")) {
    OXBOW_ASSIGN_OR_RETURN(demand.colour, NameAt(entry, "color", kColours, place));
  }
  if (entry.contains("position")) {
    OXBOW_ASSIGN_OR_RETURN(demand.position, PositionOf(entry["position"], index, place));
  }
  return demand;
}

absl::StatusOr<std::vector<GenevalDemand>> DemandsAt(const Json& metadata, const std::string& key) {
  std::vector<GenevalDemand> demands;
  if (!metadata.contains(key)) return demands;
  const Json& entries = metadata[key];
  if (!entries.is_array() || entries.size() > kEntriesMax) {
    return Wrong(key,
                 absl::StrCat("a list of up to ", kEntriesMax, " entries, got ", Shown(entries)));
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    OXBOW_ASSIGN_OR_RETURN(GenevalDemand demand,
                           DemandOf(entries[i], i, absl::StrCat(key, "[", i, "]")));
    demands.push_back(demand);
  }
  return demands;
}

}  // namespace

ClassNames GenevalThings() { return kThings; }
ClassNames GenevalColours() { return kColours; }
ClassNames GenevalRelations() { return kRelations; }

absl::StatusOr<GenevalPrompt> ParseGenevalPrompt(std::string_view metadata_json) {
  const Json metadata = ParseJson(metadata_json);
  if (!metadata.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat("the prompt's metadata are not a JSON object: ",
                                                   std::string(metadata_json.substr(0, 80))));
  }
  GenevalPrompt prompt;
  if (metadata.contains("tag")) {
    if (!metadata["tag"].is_string()) return Wrong("tag", "not a string");
    prompt.tag = metadata["tag"].get<std::string>();
  }
  OXBOW_ASSIGN_OR_RETURN(prompt.include, DemandsAt(metadata, "include"));
  OXBOW_ASSIGN_OR_RETURN(prompt.exclude, DemandsAt(metadata, "exclude"));
  if (prompt.include.empty()) {
    return Wrong("include", "missing: it says which objects the image should show");
  }
  return prompt;
}

}  // namespace oxbow::reward
