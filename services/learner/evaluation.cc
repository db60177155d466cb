#include "services/learner/evaluation.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "core/model/picture_sampler.h"

namespace oxbow::learner {
namespace {

// Mean of 1 - |x| over pixels in [-1, 1]: grey dust that scorers tolerate and people see.
double Speckle(const at::Tensor& pictures) {
  const at::Tensor x = pictures.to(at::kDouble).div_(127.5).sub_(1);
  return 1 - x.abs_().mean().item<double>();
}

// "digits_strict" -> "strict": the short name people plot.
std::string ShortName(const std::string& reward) {
  const size_t underscore = reward.find('_');
  return underscore == std::string::npos ? reward : reward.substr(underscore + 1);
}

}  // namespace

Evaluation::Evaluation(Options options, std::vector<v1::Prompt> prompts,
                       ConditioningCache& conditioning, const model::ImageDecoder& decoder,
                       reward::RewardClient& rewards)
    : options_(std::move(options)),
      prompts_(std::move(prompts)),
      conditioning_(conditioning),
      decoder_(decoder),
      rewards_(rewards) {}

absl::StatusOr<EvaluationResult> Evaluation::Run(const model::VelocityModel& model) {
  // Picture i is of prompt i mod N; the key names prompt and repetition, never the batch.
  std::vector<model::PictureRequest> requests;
  for (uint32_t i = 0; i < options_.images; ++i) {
    const uint32_t count = static_cast<uint32_t>(prompts_.size());
    OXBOW_ASSIGN_OR_RETURN(const ConditioningCache::Entry* entry,
                           conditioning_.Get(prompts_[i % count]));
    requests.push_back(
        {.conditioning = entry->tensors,
         .key = {.run_seed = options_.seed, .group = i % count, .sample = i / count}});
  }
  const at::Tensor pictures = model::SamplePictures(
      model, decoder_, model::OdeSpec(options_.sigmas), requests, options_.latent_shape);
  std::map<std::string, double> sums;
  double reward_sum = 0;
  std::vector<io::GridCell> cells(options_.images);
  for (uint32_t prompt = 0; prompt < prompts_.size(); ++prompt) {
    std::vector<reward::Picture> batch;
    std::vector<uint32_t> members;
    for (uint32_t i = prompt; i < options_.images; i += static_cast<uint32_t>(prompts_.size())) {
      members.push_back(i);
      batch.push_back({.width = static_cast<uint32_t>(pictures.size(2)),
                       .height = static_cast<uint32_t>(pictures.size(1)),
                       .channels = static_cast<uint32_t>(pictures.size(3)),
                       .pixels = model::PixelsOf(pictures, i)});
    }
    if (batch.empty()) break;
    const auto scores =
        rewards_.Score(prompts_[prompt].text(), prompts_[prompt].metadata_json(), batch);
    for (size_t k = 0; k < members.size(); ++k) {
      if (!scores[k].ok()) {
        return Annotate(scores[k].status(),
                        absl::StrCat("evaluation of \"", prompts_[prompt].text(), "\""));
      }
      double reward = 0;
      for (const auto& [name, value] : *scores[k]) {
        sums[name] += value;
        const auto weight = options_.weights.find(name);
        if (weight != options_.weights.end()) reward += weight->second * value;
      }
      reward_sum += reward;
      double weight_sum = 0;
      for (const auto& [name, weight] : options_.weights) weight_sum += weight;
      io::GridCell& cell = cells[members[k]];
      cell.picture = {.width = static_cast<int>(batch[k].width),
                      .height = static_cast<int>(batch[k].height),
                      .channels = static_cast<int>(batch[k].channels),
                      .pixels = {batch[k].pixels.begin(), batch[k].pixels.end()}};
      cell.frame = reward >= weight_sum - 1e-9 ? io::kRightColour : io::kWrongColour;
      cell.label = ShortName(prompts_[prompt].text());
    }
  }
  EvaluationResult result;
  result.metrics["eval/reward_mean"] = reward_sum / options_.images;
  result.metrics["eval/speckle_mean"] = Speckle(pictures);
  for (const auto& [name, sum] : sums) {
    result.metrics["eval/reward_" + name + "_mean"] = sum / options_.images;
    if (options_.weights.count(name) == 0) {
      result.metrics["eval/" + ShortName(name) + "_mean"] = sum / options_.images;
    }
  }
  // A scorer that says which of two equally right layouts was drawn measures diversity.
  if (const auto row = sums.find("digits_row"); row != sums.end()) {
    const double share = row->second / options_.images;
    result.metrics["eval/minority_share"] = std::min(share, 1 - share);
  }
  if (cells.size() > options_.sheet_images) cells.resize(options_.sheet_images);
  result.sheet = io::Grid(cells);
  result.caption =
      absl::StrFormat("held-out prompts, reward %.3f", result.metrics["eval/reward_mean"]);
  return result;
}

}  // namespace oxbow::learner
