#include "cli/model/image_flags.h"

namespace oxbow::cli {

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
