#include "cli/drawn_pictures.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "config/run_config.h"
#include "core/flow/schedule.h"
#include "core/model/picture_sampler.h"
#include "core/model/sd3.h"
#include "core/task/world.h"
#include "io/safetensors.h"
#include "io/tensor_torch.h"
#include "services/learner/loaded_model.h"

namespace oxbow::cli {
namespace {

// The model of a directory; of a run, with the run's own transformer. An embedded world's pictures
// have its size, others the transformer's.
absl::StatusOr<learner::LoadedModel> Load(const ModelSource& source, const std::string& prompt) {
  v1::ModelConfig config;
  v1::SamplingConfig sampling;
  if (source.run.empty()) {
    config.set_path(source.model);
    if (const task::World* const world = task::WorldOfPrompt(prompt)) {
      sampling.set_height(world->format().height);
      sampling.set_width(world->format().width);
    }
    return learner::LoadModel(config, v1::PromptConfig(), sampling);
  }
  const std::filesystem::path run(source.run);
  OXBOW_ASSIGN_OR_RETURN(const v1::RunConfig resolved,
                         config::LoadResolved(run / "config.resolved.yaml"));
  if (resolved.model().trained() == v1::TRAINED_PART_LORA) {
    return absl::FailedPreconditionError(
        absl::StrCat("run trained an adapter, which only whole models can show here (load it in "
                     "diffusers): ",
                     source.run));
  }
  OXBOW_ASSIGN_OR_RETURN(
      learner::LoadedModel loaded,
      learner::LoadModel(resolved.model(), resolved.prompts(), resolved.sampling()));
  absl::StatusOr<io::Safetensors> final_weights =
      io::ReadSafetensors(run / "weights/transformer/diffusion_pytorch_model.safetensors");
  if (!final_weights.ok()) {
    return Annotate(final_weights.status(), "final weights (is the run finished?)");
  }
  OXBOW_ASSIGN_OR_RETURN(loaded.transformer, io::AllToTorch(std::move(final_weights->tensors)));
  return loaded;
}

flow::SolverKind SolverNamed(const std::string& name) {
  if (name == "dpmpp_2m") return flow::SolverKind::kDpmpp2m;
  return name == "dpmpp_heun" ? flow::SolverKind::kDpmppHeun : flow::SolverKind::kEuler;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ReadPromptFile(const std::string& path) {
  OXBOW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  std::vector<std::string> prompts = absl::StrSplit(text, '\n', absl::SkipWhitespace());
  if (prompts.empty()) return absl::InvalidArgumentError("no prompts in file: " + path);
  return prompts;
}

absl::StatusOr<std::vector<DrawnPicture>> DrawPictures(const ModelSource& source,
                                                       const std::vector<std::string>& prompts,
                                                       const PictureOptions& options) {
  const at::NoGradGuard no_grad;
  at::set_num_threads(1);
  OXBOW_ASSIGN_OR_RETURN(const learner::LoadedModel loaded, Load(source, prompts.front()));
  OXBOW_ASSIGN_OR_RETURN(const model::Sd3Params params,
                         model::ParseSd3Config(loaded.transformer_config_json));
  OXBOW_ASSIGN_OR_RETURN(const std::unique_ptr<model::VelocityModel> velocity_model,
                         model::MakeSd3Transformer(params, loaded.transformer));
  OXBOW_ASSIGN_OR_RETURN(const model::Conditioning conditioning, loaded.prompts->Get(prompts));
  const at::Tensor pictures = model::SamplePictures(
      *velocity_model, *loaded.decoder,
      model::OdeSpec(flow::SigmaGrid(flow::ScheduleKind::kDiffusersDefault,
                                     static_cast<int>(options.steps), loaded.shift),
                     SolverNamed(options.solver)),
      model::RequestsFor(conditioning, static_cast<int>(options.per_prompt), options.seed),
      loaded.latent_shape);
  std::vector<DrawnPicture> drawn;
  for (int64_t i = 0; i < pictures.size(0); ++i) {
    const std::string pixels = model::PixelsOf(pictures, i);
    drawn.push_back({.prompt = prompts[i / options.per_prompt],
                     .picture = {.width = static_cast<int>(pictures.size(2)),
                                 .height = static_cast<int>(pictures.size(1)),
                                 .channels = static_cast<int>(pictures.size(3)),
                                 .pixels = {pixels.begin(), pixels.end()}}});
  }
  return drawn;
}

}  // namespace oxbow::cli
