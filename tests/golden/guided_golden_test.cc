// SPDX-License-Identifier: Apache-2.0
// Latents that pipelines of diffusers drew with guidance, at scales of their own
// (tools/make_guided_goldens.py): the scale of a pipeline's row, and the formula with it, draw the
// same.
#include <ATen/core/grad_mode.h>

#include "io/diffusers_directory.h"
#include "tests/golden/exported_golden.h"

namespace oxbow::model {
namespace {

constexpr double kGuidedTolerance = 1e-4;  // Relative to the largest latent, after three steps.

// Where such a file was recorded.
std::vector<std::string> GuidedNames() {
  std::vector<std::string> names;
  for (const std::string& name : ExportedNames()) {
    if (std::filesystem::exists(ExportedGoldens() / name / "guided.safetensors")) {
      names.push_back(name);
    }
  }
  return names;
}

const io::Pipeline& RowOf(const std::string& class_name) {
  for (const io::Pipeline& row : io::PipelineTable()) {
    if (row.class_name == class_name) return row;
  }
  ADD_FAILURE() << class_name;
  return io::PipelineTable().front();
}

class GuidedGoldenTest : public ExportedGolden {
 protected:
  static Conditioning Parts(const NamedTensors& tensors, const std::string& prefix) {
    Conditioning parts;
    for (const auto& [name, tensor] : tensors) {
      if (name.starts_with(prefix)) parts[name.substr(prefix.size())] = tensor;
    }
    return parts;
  }
};

// Promise: Guidance is the pipeline's own. At every scale of guidance, latents are those that the
// model's pipeline in diffusers draws at the same number. Each token of a guided velocity of
// Qwen-Image has the norm of the one with the prompt; a row's bits do not depend on the others.
TEST_P(GuidedGoldenTest, LatentsAreThoseOfThePipelineAtItsOwnScale) {
  const auto file =
      io::ReadSafetensors(ExportedGoldens() / GetParam() / "guided.safetensors").value();
  const NamedTensors tensors = *io::AllToTorch(file.tensors);
  const io::Pipeline& pipeline = RowOf(file.metadata.at("pipeline"));
  const auto scales = nlohmann::json::parse(file.metadata.at("scales"));
  const Execution execution{.embedded_guidance = std::stod(file.metadata.at("embedded_guidance"))};
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < scales.size(); ++i) {
    const std::string number = std::to_string(i) + ".";
    const double scale = io::GuidanceScale(pipeline, scales[i].get<double>());
    auto network = architecture_->Make(weights_, nullptr, execution).value();
    if (scale != 1) {
      network = MakeGuided(std::move(network), scale, Parts(tensors, "negative."),
                           architecture_->guidance_norm_patch());
    }
    at::Tensor x = tensors.at(number + "x");
    const at::Tensor sigmas = tensors.at(number + "sigmas");
    for (int64_t step = 0; step + 1 < sigmas.size(0); ++step) {
      const at::Tensor v =
          network->Velocity(x, sigmas[step].expand({x.size(0)}), Parts(tensors, "in."));
      x = x + (sigmas[step + 1] - sigmas[step]) * v;
    }
    const at::Tensor right = tensors.at(number + "out");
    EXPECT_LE(Largest(x - right), kGuidedTolerance * Largest(right)) << scales[i];
  }
  // The two are far apart.
  const at::Tensor first = tensors.at("0.out");
  EXPECT_GT(Largest(first - tensors.at("1.out")), 100 * kGuidedTolerance * Largest(first));
}

INSTANTIATE_TEST_SUITE_P(Exported, GuidedGoldenTest, ::testing::ValuesIn(GuidedNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace oxbow::model
