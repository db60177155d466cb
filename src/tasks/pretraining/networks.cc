// SPDX-License-Identifier: Apache-2.0
#include "tasks/pretraining/networks.h"

#include <ATen/ATen.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "core/model/initial_weights.h"
#include "core/model/sd3.h"
#include "tasks/pretraining/text_networks.h"

namespace oxbow::tasks {
namespace {

struct TextRow {
  std::string text_side;
  absl::StatusOr<std::unique_ptr<PretrainedText>> (*make)(const model::Architecture& transformer,
                                                          const TaskTensors& task);
};

// One row per text side.
const std::vector<TextRow>& TextTable() {
  static const std::vector<TextRow> table = {
      {"sd3", MakeSingleClipText}, {"flux", MakeFluxText}, {"wan", MakeWanText}};
  return table;
}

absl::Status CheckImages(const model::Architecture& transformer, const ImageFormat& format) {
  const model::LatentGeometry& latent = transformer.latent();
  const bool videos = format.frames != 0;
  if ((latent.frames != 0) == videos && latent.channels == format.channels &&
      format.frames % latent.patch.frames == 0 && format.height % latent.patch.height == 0 &&
      format.width % latent.patch.width == 0) {
    return absl::OkStatus();
  }
  const std::string frames = videos ? absl::StrCat(format.frames, ", ") : "";
  return absl::InvalidArgumentError(absl::StrCat(
      transformer.class_name(), " draws ", latent.layout(), " of ", latent.channels,
      " channels with heights and widths of multiples of ", latent.patch.height, " and ",
      latent.patch.width, "; this task's ", videos ? "videos" : "images", " are [", format.channels,
      ", ", frames, format.height, ", ", format.width, "]"));
}

}  // namespace

absl::StatusOr<Networks> MakeNetworks(std::shared_ptr<const model::Architecture> transformer,
                                      const std::string& text_side, const TaskTensors& task) {
  OXBOW_RETURN_IF_ERROR(CheckImages(*transformer, task.synthetic_task().format()));
  std::vector<std::string> known;
  for (const TextRow& row : TextTable()) {
    known.push_back(row.text_side);
    if (row.text_side != text_side) continue;
    OXBOW_ASSIGN_OR_RETURN(auto text, row.make(*transformer, task));
    return Networks{.transformer = std::move(transformer), .text = std::move(text)};
  }
  return absl::InvalidArgumentError(absl::StrCat("no small text encoders for the text side '",
                                                 text_side, "' (", absl::StrJoin(known, ", "),
                                                 " have some)"));
}

absl::StatusOr<Networks> OwnNetworks(const TaskTensors& task) {
  if (!task.transformer()) {
    return absl::InvalidArgumentError(
        absl::StrCat("task ", task.synthetic_task().name(), " has no transformer without a graph"));
  }
  OXBOW_ASSIGN_OR_RETURN(
      auto transformer,
      model::ReadArchitecture({.class_name = model::kSd3ClassName,
                               .config_json = model::Sd3ConfigJson(*task.transformer()),
                               .graph_json = {}}));
  return MakeNetworks(std::move(transformer), TextTable().front().text_side, task);
}

absl::StatusOr<ComponentWeights> InitialWeights(const Networks& networks, const TaskTensors& task,
                                                uint64_t seed, double embedding_std) {
  const model::Architecture& transformer = *networks.transformer;
  RandomStream random({.seed = seed, .group = 0, .step = kWeightInit});
  ComponentWeights weights;
  if (transformer.buffers().empty()) {
    weights[kTransformer] = model::InitialTransformerWeights(transformer.shapes(), random);
  } else if (task.transformer() && transformer.shapes() == model::Sd3Shapes(*task.transformer())) {
    weights[kTransformer] = model::InitialSd3Weights(*task.transformer(), random);
  } else {
    return absl::InvalidArgumentError(absl::StrCat(
        transformer.class_name(),
        " has buffers, for which there is no rule: ", absl::StrJoin(transformer.buffers(), ", ")));
  }
  const std::vector<PretrainedEncoder>& encoders = networks.text->encoders();
  for (size_t i = 0; i < encoders.size(); ++i) {
    RandomStream of_encoder({.seed = seed, .group = i + 1, .step = kWeightInit});
    weights[encoders[i].component] = encoders[i].initial(embedding_std, of_encoder);
  }
  return weights;
}

}  // namespace oxbow::tasks
