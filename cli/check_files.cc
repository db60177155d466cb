#include "cli/check_files.h"

#include <algorithm>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/nearest_name.h"
#include "cli/model_facts.h"
#include "core/reward/scorer_table.h"
#include "services/buffer/offer_limits.h"

namespace oxbow::cli {
namespace {

using config::Problem;
using config::Severity;

// The replay buffer takes a step's offers in one call, and refuses one over its limit for ever.
void CheckOffers(const v1::RunConfig& config, const ModelFacts& facts,
                 std::vector<Problem>& problems) {
  const uint64_t offered = OfferBytes(config, facts);
  if (config.replay().fraction() == 0 || offered <= buffer::kOfferBytesMax) return;
  problems.push_back(
      {Severity::kError, "batch.groups",
       absl::StrCat("a step's offers do not fit into one call to the replay buffer: lower "
                    "batch.groups, sampling.sde_count or the picture's size, choose a 2-byte "
                    "sampling.storage, or set replay.fraction to 0: ",
                    offered, " bytes of latents, limit ", buffer::kOfferBytesMax)});
}

void CheckModel(const v1::RunConfig& config, std::vector<Problem>& problems) {
  if (config.model().path().empty()) return;  // A rule's business.
  const absl::StatusOr<ModelFacts> facts = ReadModelFacts(config);
  if (facts.ok()) return CheckOffers(config, *facts, problems);
  problems.push_back({Severity::kError, "model.path", std::string(facts.status().message()),
                      facts.status().code()});
}

void CheckPrompts(const char* key, const std::string& path, std::vector<Problem>& problems) {
  if (path.empty()) return;  // A rule's business.
  std::ifstream file(path);
  bool any = false;
  for (std::string line; !any && std::getline(file, line);) {
    any = !absl::StripAsciiWhitespace(line).empty();
  }
  if (!any) {
    problems.push_back({Severity::kError, key,
                        absl::StrCat("cannot be read or holds no prompt (paths are relative to the "
                                     "working directory): ",
                                     path),
                        absl::StatusCode::kNotFound});
  }
}

void CheckReward(const char* key, const std::string& name, std::vector<Problem>& problems) {
  const std::vector<std::string> known = reward::ScorerNames();
  if (std::find(known.begin(), known.end(), name) != known.end()) return;
  const std::string nearest = NearestName(name, known);
  problems.push_back(
      {Severity::kError, key,
       absl::StrCat("unknown reward; ",
                    nearest.empty() ? absl::StrCat("known: ", absl::StrJoin(known, ", "))
                                    : absl::StrCat("did you mean `", nearest, "`?"),
                    " (", name, ")")});
}

}  // namespace

uint64_t OfferBytes(const v1::RunConfig& config, const ModelFacts& facts) {
  const v1::SamplingConfig& sampling = config.sampling();
  uint64_t latent = sampling.storage() == v1::STORAGE_D_TYPE_F32 ? 4 : 2;
  for (const int64_t size : facts.latent_shape) latent *= static_cast<uint64_t>(size);
  // Up to the end of the last stochastic step.
  const uint64_t latents = uint64_t{sampling.sde_first()} + sampling.sde_count() + 1;
  return latent * latents * config.batch().groups();
}

std::vector<Problem> CheckFiles(const v1::RunConfig& config) {
  std::vector<Problem> problems;
  CheckModel(config, problems);
  CheckPrompts("prompts.train", config.prompts().train(), problems);
  CheckPrompts("prompts.eval", config.prompts().eval(), problems);
  if (config.reward().endpoints_size() > 0) return problems;  // Those servers know their own names.
  for (const auto& term : config.reward().terms())
    CheckReward("reward.terms", term.name(), problems);
  for (const auto& name : config.reward().observed())
    CheckReward("reward.observed", name, problems);
  return problems;
}

std::vector<Problem> CheckRun(const v1::RunConfig& config) {
  std::vector<Problem> problems = config::Validate(config);
  for (Problem& problem : CheckFiles(config)) problems.push_back(std::move(problem));
  return problems;
}

}  // namespace oxbow::cli
