// SPDX-License-Identifier: Apache-2.0
// Pictures of a model directory or of a finished run, drawn by the ODE: what `oxbow sample` shows
// and `oxbow eval` measures.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/image8.h"

namespace oxbow::cli {

class WorkProgress;

// The source of the weights. Exactly one is set.
struct ModelSource {
  std::string model;  // A diffusers directory.
  std::string run;    // A run's directory: its config's model with what a checkpoint of it has.
  std::string checkpoint = "newest";  // That of the run; see ReadTrainedPart.
};

struct DrawingOptions {
  uint32_t per_prompt = 1;
  // Defaults: those of the run's evaluations; for a model, 10 steps of Euler and no guidance.
  uint32_t steps = 0;
  std::string solver;                   // euler, dpmpp_2m or dpmpp_heun.
  std::optional<double> guidance = {};  // sampling.guidance.
  // The denoising steps that a run's weights take, before the base model takes the rest; unset:
  // all. MixGRPO's hybrid inference (arXiv:2507.21802).
  std::optional<uint32_t> base_after = {};
  double embedded_guidance = 0;  // See run/model_facts.h.
  uint64_t seed = 0;
  std::string negative_prompt;
  std::string prompts_cache;  // Directory of encoded prompts; empty: the run's, of a model none.
  uint32_t t5_length = 0;     // With which they were encoded; 0: the run's, of a model its own.
  std::string device = "cpu";
};

struct DrawnPicture {
  std::string prompt;
  std::vector<Image8> frames;  // One is a picture.
};

// A loaded model that draws prompts, some at a time.
class PictureDrawer {
 public:
  // `prompt` is one of those to draw: an embedded task's says the size. kNotFound or kDataLoss
  // names a missing or broken file. kInvalidArgument: base_after is above the number of steps.
  static absl::StatusOr<std::unique_ptr<PictureDrawer>> Open(const ModelSource& source,
                                                             const std::string& prompt,
                                                             const DrawingOptions& options);
  ~PictureDrawer();

  // Counts there what Draw has drawn of `total` pictures, all its calls together; a path that is
  // half done counts as half a picture. `progress` outlives the calls.
  void ReportTo(WorkProgress& progress, uint64_t total);

  // The frames of pictures or videos, in order of the prompts, `per_prompt` each. Their noise
  // depends on the seed, the prompt's number, counted from `first`, and the picture's number alone.
  absl::StatusOr<std::vector<std::vector<Image8>>> Draw(const std::vector<std::string>& prompts,
                                                        uint32_t per_prompt, uint64_t seed,
                                                        uint64_t first = 0);

 private:
  struct Drawing;
  explicit PictureDrawer(std::unique_ptr<Drawing> drawing);
  const std::unique_ptr<Drawing> drawing_;
};

// Reads a prompt file: one prompt per line. kInvalidArgument if it has none.
absl::StatusOr<std::vector<std::string>> ReadPromptFile(const std::string& path);

// Pictures in order of the prompts, `per_prompt` each. kNotFound or kDataLoss names a missing or
// broken file.
absl::StatusOr<std::vector<DrawnPicture>> DrawPictures(const ModelSource& source,
                                                       const std::vector<std::string>& prompts,
                                                       const DrawingOptions& options,
                                                       WorkProgress& progress);

// --model: a directory, or the id of a model in the cache of the Hugging Face Hub. `model` outlives
// the parsing.
void AddModelFlag(CLI::App& command, std::string& model);

// --model or --run. Both references outlive the parsing.
void AddSourceFlags(CLI::App& command, ModelSource& source);

// How they are drawn; how many is the command's own.
void AddDrawingFlags(CLI::App& command, DrawingOptions& drawing);

// Warnings about prompts, before a person looks at their pictures: words that an embedded model
// was not trained on, and prompts without words.
//
// Whole sentences; none for a model whose tokenizer has a large vocabulary, or is of another kind.
std::vector<std::string> PromptWarnings(const ModelSource& source,
                                        const std::vector<std::string>& prompts);

}  // namespace oxbow::cli
