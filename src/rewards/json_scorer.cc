// SPDX-License-Identifier: Apache-2.0
#include "rewards/json_scorer.h"

#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/json.h"
#include "io/image.h"

namespace oxbow::rewards {
namespace {

using Json = nlohmann::json;
using reward::Item;
using reward::Score;

std::string Png64(const Image8& image) { return absl::Base64Escape(io::EncodePng(image)); }

// All of one medium.
std::string RequestOf(const std::vector<const Item*>& items) {
  Json request = {{"prompt", Json::array()},
                  {"image", nullptr},
                  {"video", nullptr},
                  {"condition_images", nullptr},
                  {"condition_videos", nullptr},
                  {"extra", nullptr}};
  Json extra = Json::array();
  bool has_extra = false;
  for (const Item* item : items) {
    request["prompt"].push_back(item->prompt);
    Json metadata = ParseJson(item->metadata_json);
    if (!metadata.is_object()) metadata = nullptr;
    has_extra = has_extra || metadata.is_object();
    extra.push_back(std::move(metadata));
    if (!item->is_video()) {
      request["image"].push_back(Png64(item->picture()));
      continue;
    }
    Json frames = Json::array();
    for (const Image8& frame : item->frames) frames.push_back(Png64(frame));
    request["video"].push_back(std::move(frames));
  }
  if (has_extra) request["extra"] = std::move(extra);
  return JsonText(request);
}

class JsonScorer final : public reward::Scorer {
 public:
  JsonScorer(reward::RewardFacts facts, const JsonScorerSettings& settings)
      : facts_(std::move(facts)),
        concurrency_(settings.concurrency),
        time_max_(settings.time_max),
        server_(settings.server) {}

  const reward::RewardFacts& facts() const override { return facts_; }
  void Stop() override { server_.Stop(); }
  int concurrency_max() const override { return concurrency_; }

  std::vector<absl::StatusOr<Score>> ScoreBatch(absl::Span<const Item> items) override {
    // Places by medium, and by group where the server compares.
    std::map<std::pair<bool, uint64_t>, std::vector<size_t>> requests;
    for (size_t i = 0; i < items.size(); ++i) {
      requests[{items[i].is_video(), facts_.groupwise ? items[i].group : 0}].push_back(i);
    }
    const absl::Duration until = server_.Now() + time_max_;
    std::vector<absl::StatusOr<Score>> scores(items.size(), absl::UnknownError("not scored"));
    for (const auto& [kind, places] : requests) Ask(items, places, until, scores);
    return scores;
  }

 private:
  void Ask(absl::Span<const Item> items, const std::vector<size_t>& places, absl::Duration until,
           std::vector<absl::StatusOr<Score>>& scores) {
    std::vector<const Item*> asked;
    for (const size_t place : places) asked.push_back(&items[place]);
    const absl::StatusOr<std::string> answer = server_.Ask("/compute", RequestOf(asked), until);
    const absl::StatusOr<std::vector<absl::StatusOr<Score>>> rewards =
        answer.ok() ? RewardsOfAnswer(*answer, places.size()) : answer.status();
    for (size_t i = 0; i < places.size(); ++i) {
      scores[places[i]] = rewards.ok() ? (*rewards)[i] : rewards.status();
      if (!scores[places[i]].ok()) scores[places[i]] = server_.Clean(scores[places[i]].status());
    }
  }

  const reward::RewardFacts facts_;
  const int concurrency_;
  const absl::Duration time_max_;
  RemoteServer server_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<reward::Scorer>> MakeJsonScorer(const JsonScorerSettings& settings) {
  if (const absl::Status url = io::CheckHttpUrl(settings.server.url); !url.ok()) return url;
  const char* kind = settings.groupwise ? "groupwise" : "pointwise";
  reward::RewardFacts facts{
      .name = settings.name,
      .help = "what a server of Flow-Factory's protocol says, in its own units",
      .groupwise = settings.groupwise,
      .identity = absl::StrCat("json/1 ", kind, " ",
                               settings.model.empty() ? settings.name : settings.model),
      .batch_max = settings.groupwise ? 0 : settings.batch_max,
      .videos = true,
      .cache_items = settings.groupwise ? 0 : kRemoteCacheItems};
  return std::make_unique<JsonScorer>(std::move(facts), settings);
}

}  // namespace oxbow::rewards
