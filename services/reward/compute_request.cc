// SPDX-License-Identifier: Apache-2.0
#include "services/reward/compute_request.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "io/image.h"
#include "io/json_depth.h"
#include "services/reward/score_messages.h"
#include "services/reward/scorer_panel.h"

namespace oxbow::reward {
namespace {

using Json = nlohmann::json;

constexpr int kDepthMax = 32;

bool IsGiven(const Json& request, const char* key) {
  const auto at = request.find(key);
  return at != request.end() && !at->is_null() && !at->empty();
}

// Pictures of one request, with a limit on all their pixels.
class Pictures {
 public:
  absl::StatusOr<Image8> Read(const Json& base64) {
    if (!base64.is_string()) return absl::InvalidArgumentError("expected base64 of a PNG or JPEG");
    std::string bytes;
    if (!absl::Base64Unescape(base64.get_ref<const std::string&>(), &bytes)) {
      return absl::InvalidArgumentError("expected base64 of a PNG or JPEG");
    }
    absl::StatusOr<Image8> image = io::DecodeImage(bytes, left_);
    if (!image.ok()) return absl::InvalidArgumentError(image.status().message());
    OXBOW_RETURN_IF_ERROR(Validate(*image));
    left_ -= int64_t{image->width} * image->height;
    return image;
  }

  absl::StatusOr<std::vector<Image8>> ReadFrames(const Json& frames) {
    if (!frames.is_array() || frames.empty() || frames.size() > kFramesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("expected a video of 1 to ", kFramesMax, " frames"));
    }
    std::vector<Image8> images;
    for (const Json& frame : frames) {
      OXBOW_ASSIGN_OR_RETURN(Image8 image, Read(frame));
      if (!images.empty() && (image.width != images[0].width || image.height != images[0].height ||
                              image.channels != images[0].channels)) {
        return absl::InvalidArgumentError("frames of one video differ in size");
      }
      images.push_back(std::move(image));
    }
    return images;
  }

 private:
  int64_t left_ = kRequestPixelsMax;
};

// Prompts, one for each item.
absl::StatusOr<ComputeRequest> ReadPrompts(const Json& request, size_t items_max) {
  const auto prompts = request.find("prompt");
  if (prompts == request.end() || !prompts->is_array() || prompts->empty()) {
    return absl::InvalidArgumentError("`prompt` is a list of texts, one for each item");
  }
  if (prompts->size() > items_max) {
    return absl::InvalidArgumentError(absl::StrCat(
        "at most ", items_max, " items a request (batch_size), got ", prompts->size()));
  }
  ComputeRequest read;
  for (const Json& prompt : *prompts) {
    if (!prompt.is_string()) return absl::InvalidArgumentError("`prompt` is a list of texts");
    read.items.push_back({.prompt = prompt.get<std::string>(), .metadata_json = "", .frames = {}});
  }
  return read;
}

absl::Status ReadExtra(const Json& request, ComputeRequest& read) {
  if (!IsGiven(request, "extra")) return absl::OkStatus();
  const Json& extra = request["extra"];
  if (!extra.is_array() || extra.size() != read.items.size()) {
    return absl::InvalidArgumentError("`extra` is null, or a list of one metadata object per item");
  }
  for (size_t i = 0; i < read.items.size(); ++i) {
    if (extra[i].is_null()) continue;
    if (!extra[i].is_object()) {
      return absl::InvalidArgumentError(absl::StrCat("extra[", i, "] is no object"));
    }
    read.items[i].metadata_json = extra[i].dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ComputeRequest> ReadComputeRequest(const std::string& body, size_t items_max) {
  if (io::IsNestedBeyond(body, kDepthMax)) {
    return absl::InvalidArgumentError("the request is nested too deeply");
  }
  const Json request = Json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (!request.is_object()) return absl::InvalidArgumentError("the request is no JSON object");
  OXBOW_ASSIGN_OR_RETURN(ComputeRequest read, ReadPrompts(request, items_max));
  for (const char* key : {"condition_images", "condition_videos"}) {
    if (IsGiven(request, key)) {
      return absl::InvalidArgumentError(absl::StrCat("rewards here read no `", key, "`"));
    }
  }
  const bool video = IsGiven(request, "video");
  const char* key = video ? "video" : "image";
  if (video == IsGiven(request, "image") || !request[key].is_array() ||
      request[key].size() != read.items.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("either `image` or `video` is a list with an entry for each of ",
                     read.items.size(), " prompts"));
  }
  Pictures pictures;
  for (size_t i = 0; i < read.items.size(); ++i) {
    absl::StatusOr<std::vector<Image8>> frames = std::vector<Image8>(1);
    if (video) {
      frames = pictures.ReadFrames(request[key][i]);
    } else if (absl::StatusOr<Image8> image = pictures.Read(request[key][i]); image.ok()) {
      frames->front() = *std::move(image);
    } else {
      frames = image.status();
    }
    if (!frames.ok()) return Annotate(frames.status(), absl::StrCat(key, "[", i, "]"));
    read.items[i].frames = *std::move(frames);
  }
  OXBOW_RETURN_IF_ERROR(ReadExtra(request, read));
  return read;
}

HttpReply ReplyOf(const absl::Status& error) {
  HttpReply reply{.code = 500, .body = ""};
  if (absl::IsInvalidArgument(error)) reply.code = 400;
  if (absl::IsNotFound(error)) reply.code = 404;
  if (absl::IsResourceExhausted(error) || absl::IsUnavailable(error) || absl::IsCancelled(error)) {
    reply.code = 503;
  }
  reply.body = Json{{"detail", std::string(error.message())}}.dump(-1, ' ', false,
                                                                   Json::error_handler_t::replace);
  return reply;
}

HttpReply ReplyOf(const std::vector<absl::StatusOr<Score>>& scores) {
  Json rewards = Json::array();
  for (size_t i = 0; i < scores.size(); ++i) {
    if (!scores[i].ok()) return ReplyOf(Annotate(scores[i].status(), absl::StrCat("item ", i)));
    rewards.push_back(scores[i]->value);
  }
  return {.code = 200, .body = Json{{"rewards", std::move(rewards)}}.dump()};
}

}  // namespace oxbow::reward
