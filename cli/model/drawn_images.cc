#include "cli/model/drawn_images.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <memory>
#include <utility>

#include "absl/strings/str_split.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "cli/model/trained_part.h"
#include "core/model/device.h"
#include "core/model/image_sampler.h"
#include "core/model/policy.h"
#include "io/tensor_torch.h"
#include "run/loaded_model.h"
#include "run/sampling_spec.h"
#include "run/scalar_type.h"
#include "tasks/synthetic_task.h"

namespace oxbow::cli {
namespace {

// A model and how its velocities are asked for.
struct Drawing {
  run::LoadedModel model;
  v1::RunConfig config;
  std::unique_ptr<model::Policy> policy;
};

// The config of a directory. A synthetic task sets the size, else the transformer does.
v1::RunConfig ConfigOfModel(const ModelSource& source, const std::string& prompt) {
  v1::RunConfig config;
  config.mutable_model()->set_path(source.model);
  config.mutable_model()->set_trained(v1::TRAINED_PART_FULL);
  config.mutable_model()->set_compute_dtype(v1::STORAGE_D_TYPE_F32);
  config.mutable_sampling()->set_guidance(1);
  config.mutable_sampling()->set_steps(10);
  config.mutable_sampling()->set_schedule(v1::SCHEDULE_KIND_DIFFUSERS_DEFAULT);
  config.mutable_eval()->set_solver(v1::SOLVER_KIND_EULER);
  if (const tasks::SyntheticTask* const task = tasks::TaskOfPrompt(prompt)) {
    config.mutable_sampling()->set_height(task->format().height);
    config.mutable_sampling()->set_width(task->format().width);
  }
  return config;
}

// The network that draws; what a run trained is loaded later.
absl::StatusOr<std::unique_ptr<model::Policy>> PolicyFor(Drawing& drawing) {
  const v1::RunConfig& config = drawing.config;
  const v1::LoraConfig& lora = config.model().lora();
  const bool adapter = config.model().trained() == v1::TRAINED_PART_LORA;
  model::Policy::Options options{
      .architecture = drawing.model.architecture,
      .base = std::move(drawing.model.transformer),
      .trained = adapter ? model::Trained::kLora : model::Trained::kFull,
      .lora = {.rank = lora.rank(),
               .alpha = lora.alpha(),
               .targets = {lora.targets().begin(), lora.targets().end()}},
      .with_reference = false,
      .with_ema = false,
      .trainable = false,
      .guidance = config.sampling().guidance()};
  OXBOW_ASSIGN_OR_RETURN(options.device, model::DeviceNamed(config.model().device()));
  OXBOW_ASSIGN_OR_RETURN(options.compute, run::ScalarTypeFromConfig(config.model().compute_dtype(),
                                                                    "model.compute_dtype"));
  if (options.guidance != 1) {
    OXBOW_ASSIGN_OR_RETURN(options.negative,
                           drawing.model.prompts->Get({config.sampling().negative_prompt()}));
  }
  return model::Policy::Create(std::move(options));
}

v1::SolverKind SolverNamed(const std::string& name) {
  if (name == "dpmpp_2m") return v1::SOLVER_KIND_DPMPP_2M;
  return name == "dpmpp_heun" ? v1::SOLVER_KIND_DPMPP_HEUN : v1::SOLVER_KIND_EULER;
}

absl::StatusOr<Drawing> Load(const ModelSource& source, const std::string& prompt,
                             const ImageOptions& options) {
  Drawing drawing;
  model::NamedTensors trained;
  if (source.run.empty()) {
    drawing.config = ConfigOfModel(source, prompt);
  } else {
    OXBOW_ASSIGN_OR_RETURN(TrainedPart part, ReadTrainedPart(source.run));
    OXBOW_ASSIGN_OR_RETURN(trained, io::AllToTorch(std::move(part.tensors)));
    drawing.config = std::move(part.config);
  }
  drawing.config.mutable_model()->set_device(options.device);  // Not where the run trained.
  v1::SamplingConfig& sampling = *drawing.config.mutable_sampling();
  if (options.guidance > 0) sampling.set_guidance(options.guidance);
  if (!options.negative_prompt.empty()) sampling.set_negative_prompt(options.negative_prompt);
  v1::EvalConfig& eval = *drawing.config.mutable_eval();
  if (options.steps > 0) eval.set_steps(options.steps);
  if (!options.solver.empty()) eval.set_solver(SolverNamed(options.solver));
  OXBOW_ASSIGN_OR_RETURN(
      drawing.model, run::LoadModel(drawing.config.model(), drawing.config.prompts(), sampling));
  if (sampling.shift() == 0) sampling.set_shift(drawing.model.shift);
  OXBOW_ASSIGN_OR_RETURN(drawing.policy, PolicyFor(drawing));
  if (!trained.empty()) OXBOW_RETURN_IF_ERROR(drawing.policy->Load(trained));
  return drawing;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ReadPromptFile(const std::string& path) {
  OXBOW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  std::vector<std::string> prompts = absl::StrSplit(text, '\n', absl::SkipWhitespace());
  if (prompts.empty()) return absl::InvalidArgumentError("no prompts in file: " + path);
  return prompts;
}

absl::StatusOr<std::vector<DrawnImage>> DrawImages(const ModelSource& source,
                                                   const std::vector<std::string>& prompts,
                                                   const ImageOptions& options) {
  const at::NoGradGuard no_grad;
  at::set_num_threads(1);
  OXBOW_ASSIGN_OR_RETURN(const Drawing drawing, Load(source, prompts.front(), options));
  const run::LoadedModel& loaded = drawing.model;
  OXBOW_ASSIGN_OR_RETURN(const model::Conditioning conditioning, loaded.prompts->Get(prompts));
  OXBOW_ASSIGN_OR_RETURN(const flow::SamplingSpec spec,
                         run::EvaluationSpecFromConfig(drawing.config));
  const at::Tensor images = model::SampleImages(
      drawing.policy->current(), *loaded.decoder, model::OdeSpec(spec.sigmas, spec.solver),
      model::RequestsFor(conditioning, static_cast<int>(options.per_prompt), options.seed),
      loaded.latent_shape);
  std::vector<DrawnImage> drawn;
  for (int64_t i = 0; i < images.size(0); ++i) {
    drawn.push_back(
        {.prompt = prompts[i / options.per_prompt], .image = model::ImageOf(images, i)});
  }
  return drawn;
}

void AddSourceFlags(CLI::App& command, ModelSource& source) {
  CLI::Option_group* const group = command.add_option_group("source");
  group->add_option("--model", source.model, "diffusers directory");
  group->add_option("--run", source.run, "directory of a run: what its newest checkpoint has");
  group->require_option(1);
}

void AddImageFlags(CLI::App& command, ImageOptions& images) {
  command
      .add_option("--steps", images.steps,
                  "ODE steps; default: as the run evaluates, of a model 10")
      ->check(CLI::Range(1, 1000));
  command
      .add_option("--solver", images.solver,
                  "of the ODE; default: as the run evaluates, of a model euler")
      ->check(CLI::IsMember({"euler", "dpmpp_2m", "dpmpp_heun"}));
  command
      .add_option("--guidance", images.guidance,
                  "classifier-free guidance; default: the run's, of a model none")
      ->check(CLI::Range(1.0, 100.0));
  command.add_option("--negative-prompt", images.negative_prompt, "what guidance leads away from");
  command.add_option("--device", images.device, "cpu, cuda or cuda:N")->capture_default_str();
  command.add_option("--seed", images.seed, "of the noise")->capture_default_str();
}

}  // namespace oxbow::cli
