// SPDX-License-Identifier: Apache-2.0
#include "cli/model/drawn_pictures.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "cli/model/trained_part.h"
#include "cli/run/work_progress.h"
#include "cli/run_option.h"
#include "config/file_paths.h"
#include "config/run_config.h"
#include "core/model/device.h"
#include "core/model/image_sampler.h"
#include "core/model/policy.h"
#include "core/model/velocity_model.h"
#include "core/reward/synthetic_task.h"
#include "io/clip_tokenizer.h"
#include "io/tensor_torch.h"
#include "run/loaded_model.h"
#include "run/model_facts.h"
#include "run/sampling_spec.h"
#include "run/trainer_options.h"

namespace oxbow::cli {

namespace {

// CLIP's own has 49408; an embedded model's 514 and one for each word.
constexpr int64_t kWordListMax = 4096;
constexpr size_t kWordsShown = 10;

std::string PathOf(const ModelSource& source) {
  if (source.run.empty()) return source.model;
  const auto config = ConfigOfRun(source.run);
  return config.ok() ? config->model().path() : "";
}

std::string ListOf(const std::set<std::string>& words) {
  const size_t shown = std::min(words.size(), kWordsShown);
  const auto end = std::next(words.begin(), static_cast<std::ptrdiff_t>(shown));
  const size_t more = words.size() - shown;
  return absl::StrCat(absl::StrJoin(words.begin(), end, ", "),
                      more == 0 ? "" : absl::StrCat(" and ", more, " more"));
}

}  // namespace

// The trained network above a noise level, the base model from there on.
class TrainedThenBase final : public model::VelocityModel {
 public:
  // The first `steps` of the falling levels are the trained network's; both outlive it.
  TrainedThenBase(const model::Policy& policy, const std::vector<double>& sigmas, size_t steps)
      : policy_(policy),
        // Between two levels: they come as float32.
        above_(steps == 0 ? sigmas[0] + 1 : (sigmas[steps - 1] + sigmas[steps]) / 2) {}

 private:
  at::Tensor Predict(const at::Tensor& x, const at::Tensor& sigma,
                     const model::Conditioning& conditioning) const override {
    const bool trained = sigma[0].item<double>() > above_;
    return (trained ? policy_.current() : policy_.reference()).Velocity(x, sigma, conditioning);
  }

  const model::Policy& policy_;
  const double above_;
};

// A model and how its velocities are asked for.
struct PictureDrawer::Drawing {
  run::LoadedModel model;
  v1::RunConfig config;
  std::unique_ptr<model::Policy> policy;
  std::unique_ptr<TrainedThenBase> hybrid;  // Null: the policy takes all steps.
  flow::SamplingSpec spec = {};
  WorkProgress* progress = nullptr;  // Null: nobody is told.
  uint64_t total = 0;
  uint64_t drawn = 0;  // By earlier calls.

  const model::VelocityModel& network() const {
    return hybrid != nullptr ? static_cast<const model::VelocityModel&>(*hybrid)
                             : policy->current();
  }
};

namespace {

// A velocity model that says after each call how many rows it has had by then.
class CountedRows final : public model::VelocityModel {
 public:
  CountedRows(const model::VelocityModel& model, std::function<void(int64_t rows)> said)
      : model_(model), said_(std::move(said)) {}

 private:
  at::Tensor Predict(const at::Tensor& x, const at::Tensor& sigma,
                     const model::Conditioning& conditioning) const override {
    at::Tensor velocity = model_.Velocity(x, sigma, conditioning);
    rows_ += x.size(0);
    said_(rows_);
    return velocity;
  }

  const model::VelocityModel& model_;
  const std::function<void(int64_t rows)> said_;
  mutable int64_t rows_ = 0;
};

// The config of a directory. A synthetic task sets the size, else the transformer does.
v1::RunConfig ConfigOfModel(const ModelSource& source, const std::string& prompt) {
  v1::RunConfig config;
  config.mutable_model()->set_path(source.model);
  config.mutable_model()->set_trained(v1::TRAINED_PART_FULL);
  config.mutable_model()->set_compute_dtype(v1::STORAGE_D_TYPE_F32);
  config.mutable_sampling()->set_guidance(0);
  config.mutable_sampling()->set_steps(10);
  config.mutable_sampling()->set_schedule(v1::SCHEDULE_KIND_DIFFUSERS_DEFAULT);
  config.mutable_eval()->set_solver(v1::SOLVER_KIND_EULER);
  if (const reward::SyntheticTask* const task = reward::TaskOfPrompt(prompt)) {
    config.mutable_sampling()->set_height(task->format().height);
    config.mutable_sampling()->set_width(task->format().width);
    config.mutable_sampling()->set_frames(task->format().frames);
  }
  return config;
}

// The network that draws; what a run trained is loaded later.
absl::StatusOr<std::unique_ptr<model::Policy>> PolicyFor(v1::RunConfig config,
                                                         run::LoadedModel& model,
                                                         bool with_reference) {
  run::FillLoraTargets(*model.architecture, *config.mutable_model());
  const v1::LoraConfig& lora = config.model().lora();
  const bool adapter = config.model().trained() == v1::TRAINED_PART_LORA;
  model::Policy::Options options{
      .architecture = model.architecture,
      .read_base = std::move(model.read_transformer),
      .trained = adapter ? model::Trained::kLora : model::Trained::kFull,
      .lora = {.rank = lora.rank(),
               .alpha = lora.alpha(),
               .targets = {lora.targets().begin(), lora.targets().end()}},
      .with_reference = with_reference,
      .with_ema = false,
      .trainable = false,
      .guidance = model.guidance,
      .embedded_guidance = model.embedded_guidance,
      .whole_timesteps = config.sampling().whole_timesteps(),
      .base_weights = run::BaseWeightsOf(config.model())};
  OXBOW_ASSIGN_OR_RETURN(options.device, model::DeviceNamed(config.model().device()));
  OXBOW_ASSIGN_OR_RETURN(options.compute, run::ScalarTypeFromConfig(config.model().compute_dtype(),
                                                                    "model.compute_dtype"));
  if (options.guidance != 1) {
    OXBOW_ASSIGN_OR_RETURN(options.negative,
                           model.prompts->Get({config.sampling().negative_prompt()}));
  }
  return model::Policy::Create(std::move(options));
}

v1::SolverKind SolverNamed(const std::string& name) {
  if (name == "dpmpp_2m") return v1::SOLVER_KIND_DPMPP_2M;
  return name == "dpmpp_heun" ? v1::SOLVER_KIND_DPMPP_HEUN : v1::SOLVER_KIND_EULER;
}

// The options over the config of a run or of a model directory.
void Apply(const DrawingOptions& options, v1::RunConfig& config) {
  config.mutable_model()->set_device(options.device);  // Not where the run trained.
  if (!options.prompts_cache.empty()) config.mutable_prompts()->set_cache(options.prompts_cache);
  if (options.t5_length > 0) config.mutable_prompts()->set_t5_length(options.t5_length);
  v1::SamplingConfig& sampling = *config.mutable_sampling();
  if (options.guidance.has_value()) sampling.set_guidance(*options.guidance);
  if (options.embedded_guidance > 0) sampling.set_embedded_guidance(options.embedded_guidance);
  if (!options.negative_prompt.empty()) sampling.set_negative_prompt(options.negative_prompt);
  v1::EvalConfig& eval = *config.mutable_eval();
  if (options.steps > 0) eval.set_steps(options.steps);
  if (!options.solver.empty()) eval.set_solver(SolverNamed(options.solver));
}

}  // namespace

PictureDrawer::PictureDrawer(std::unique_ptr<Drawing> drawing) : drawing_(std::move(drawing)) {}
PictureDrawer::~PictureDrawer() = default;

absl::StatusOr<std::unique_ptr<PictureDrawer>> PictureDrawer::Open(const ModelSource& source,
                                                                   const std::string& prompt,
                                                                   const DrawingOptions& options) {
  at::set_num_threads(1);
  auto drawing = std::make_unique<Drawing>();
  v1::RunConfig& config = drawing->config;
  model::NamedTensors trained;
  if (source.run.empty()) {
    config = ConfigOfModel(source, prompt);
    if (options.steps > 0) config.mutable_sampling()->set_steps(options.steps);
  } else {
    OXBOW_ASSIGN_OR_RETURN(TrainedPart part, ReadTrainedPart(source.run, source.checkpoint));
    OXBOW_ASSIGN_OR_RETURN(trained, io::AllToTorch(std::move(part.tensors)));
    config = std::move(part.config);
  }
  Apply(options, config);
  v1::SamplingConfig& sampling = *config.mutable_sampling();
  sampling = run::EvaluationSampling(config);
  OXBOW_ASSIGN_OR_RETURN(drawing->model,
                         run::LoadModel(config.model(), config.prompts(), sampling));
  run::ResolveSampling(drawing->model.schedule, sampling);
  // A model directory is a base model throughout: one that a run is compared with.
  const bool hybrid = options.base_after.has_value() && !source.run.empty();
  OXBOW_ASSIGN_OR_RETURN(drawing->policy, PolicyFor(config, drawing->model, hybrid));
  if (!trained.empty()) OXBOW_RETURN_IF_ERROR(drawing->policy->Load(trained));
  OXBOW_ASSIGN_OR_RETURN(const flow::SamplingSpec spec, run::EvaluationSpecFromConfig(config));
  drawing->spec = model::OdeSpec(spec.sigmas, spec.solver);
  if (hybrid) {
    const auto steps = static_cast<uint32_t>(drawing->spec.steps());
    if (*options.base_after > steps) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--base-after takes 0 to ", steps, ", the number of steps: ", *options.base_after));
    }
    drawing->hybrid = std::make_unique<TrainedThenBase>(*drawing->policy, drawing->spec.sigmas,
                                                        *options.base_after);
  }
  return std::unique_ptr<PictureDrawer>(new PictureDrawer(std::move(drawing)));
}

absl::StatusOr<std::vector<std::vector<Image8>>> PictureDrawer::Draw(
    const std::vector<std::string>& prompts, uint32_t per_prompt, uint64_t seed, uint64_t first) {
  const run::LoadedModel& loaded = drawing_->model;
  const at::NoGradGuard no_grad;
  OXBOW_ASSIGN_OR_RETURN(const model::Conditioning conditioning, loaded.prompts->Get(prompts));
  const at::Device device = drawing_->policy->parameters().flat().device();
  std::vector<model::ImageRequest> requests =
      model::RequestsFor(model::MovedTo(conditioning, device), static_cast<int>(per_prompt), seed);
  for (model::ImageRequest& request : requests) request.key.group += first;
  const auto steps = static_cast<double>(drawing_->spec.steps());
  const auto say = [&](int64_t rows) {
    if (drawing_->progress == nullptr) return;
    drawing_->progress->Count(
        static_cast<double>(drawing_->drawn) + static_cast<double>(rows) / steps, drawing_->total,
        "pictures");
  };
  say(0);
  auto drawn =
      model::SampleFrames(CountedRows(drawing_->network(), say), *loaded.decoder, drawing_->spec,
                          requests, loaded.latent_shape, model::SamplesAtOnce(loaded.latent_shape));
  drawing_->drawn += requests.size();
  return drawn;
}

void PictureDrawer::ReportTo(WorkProgress& progress, uint64_t total) {
  drawing_->progress = &progress;
  drawing_->total = total;
}

absl::StatusOr<std::vector<std::string>> ReadPromptFile(const std::string& path) {
  OXBOW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  std::vector<std::string> prompts = absl::StrSplit(text, '\n', absl::SkipWhitespace());
  if (prompts.empty()) return absl::InvalidArgumentError("no prompts in file: " + path);
  return prompts;
}

absl::StatusOr<std::vector<DrawnPicture>> DrawPictures(const ModelSource& source,
                                                       const std::vector<std::string>& prompts,
                                                       const DrawingOptions& options,
                                                       WorkProgress& progress) {
  progress.Begin("loading the model");
  OXBOW_ASSIGN_OR_RETURN(const auto drawer, PictureDrawer::Open(source, prompts.front(), options));
  progress.Begin("drawing");
  drawer->ReportTo(progress, prompts.size() * options.per_prompt);
  OXBOW_ASSIGN_OR_RETURN(std::vector<std::vector<Image8>> pictures,
                         drawer->Draw(prompts, options.per_prompt, options.seed));
  std::vector<DrawnPicture> drawn;
  for (size_t i = 0; i < pictures.size(); ++i) {
    drawn.push_back({.prompt = prompts[i / options.per_prompt], .frames = std::move(pictures[i])});
  }
  return drawn;
}

void AddModelFlag(CLI::App& command, std::string& model) {
  command
      .add_option("--model", model,
                  "diffusers directory, or the id of a model that `hf download` has fetched")
      ->transform([](const std::string& path) {
        return config::FetchedModel(path, config::ProcessEnvironment());
      });
}

void AddSourceFlags(CLI::App& command, ModelSource& source) {
  CLI::Option_group* const group = command.add_option_group("source");
  AddModelFlag(*group, source.model);
  CLI::Option* const run = AddRunDirectory(
      *group, source.run, "directory of a run: what a checkpoint of it has; --run may be left out");
  group->require_option(1);
  command.add_option("--checkpoint", source.checkpoint, kCheckpointHelp)->needs(run);
}

void AddDrawingFlags(CLI::App& command, DrawingOptions& drawing) {
  command
      .add_option("--steps", drawing.steps,
                  "ODE steps; default: as the run evaluates, of a model 10")
      ->check(CLI::Range(1, 1000));
  command
      .add_option("--base-after", drawing.base_after,
                  "a run's weights take so many steps, the base model the rest (MixGRPO's hybrid "
                  "sampling)")
      ->check(CLI::Range(0, 1000))
      ->needs(command.get_option("--run"));
  command
      .add_option("--solver", drawing.solver,
                  "of the ODE; default: as the run evaluates, of a model euler")
      ->check(CLI::IsMember({"euler", "dpmpp_2m", "dpmpp_heun"}));
  command
      .add_option("--guidance", drawing.guidance,
                  "classifier-free guidance, the pipeline's own scale; default: the run's, of a "
                  "model none")
      ->check(CLI::Range(0.0, 100.0));
  command
      .add_option("--embedded-guidance", drawing.embedded_guidance,
                  "scale that the network takes as an input; default: the run's, else its own")
      ->check(CLI::PositiveNumber);
  command.add_option("--negative-prompt", drawing.negative_prompt, "what guidance leads away from");
  command.add_option("--prompts-cache", drawing.prompts_cache,
                     "directory of encoded prompts; default: the run's, of a model none");
  command
      .add_option("--t5-length", drawing.t5_length,
                  "tokens with which they were encoded; default: the run's, of a model its own")
      ->check(CLI::Range(1, 512));
  command.add_option("--device", drawing.device, "cpu, cuda or cuda:N")->capture_default_str();
  command.add_option("--seed", drawing.seed, "of the noise")->capture_default_str();
}

std::vector<std::string> PromptWarnings(const ModelSource& source,
                                        const std::vector<std::string>& prompts) {
  const std::string path = PathOf(source);
  if (path.empty()) return {};
  const auto tokenizer = io::ClipTokenizer::Load(std::filesystem::path(path) / "tokenizer");
  if (!tokenizer.ok() || tokenizer->size() > kWordListMax) return {};
  std::set<std::string> unknown;
  bool empty = false;
  for (const std::string& prompt : prompts) {
    empty = empty || absl::StripAsciiWhitespace(prompt).empty();
    for (const std::string& word : tokenizer->SplitWords(prompt)) unknown.insert(word);
  }
  std::vector<std::string> warnings;
  if (!unknown.empty()) {
    warnings.push_back(
        absl::StrCat(path, " was not trained on these words, and guesses: ", ListOf(unknown)));
  }
  if (empty) warnings.push_back("a prompt without words asks for nothing in particular");
  return warnings;
}

}  // namespace oxbow::cli
