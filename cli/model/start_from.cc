// SPDX-License-Identifier: Apache-2.0
#include "cli/model/start_from.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cli/model/trained_part.h"
#include "io/diffusers_directory.h"

namespace oxbow::cli {
namespace {

bool NamesCheckpoint(const std::string& text) {
  return text == "best" || text == "newest" ||
         (!text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit));
}

const char* KindOf(const v1::RunConfig& config) {
  return config.model().trained() == v1::TRAINED_PART_LORA ? "an adapter (lora)"
                                                           : "all weights (full)";
}

}  // namespace

StartFrom ParseStartFrom(const std::string& text) {
  const size_t at = text.rfind('@');
  if (at == std::string::npos || !NamesCheckpoint(text.substr(at + 1))) return {.run = text};
  return {.run = text.substr(0, at), .checkpoint = text.substr(at + 1)};
}

absl::StatusOr<run::StartWeights> StartWeightsFrom(const std::string& text,
                                                   const v1::RunConfig& config) {
  const StartFrom from = ParseStartFrom(text);
  OXBOW_ASSIGN_OR_RETURN(TrainedPart trained, ReadTrainedPart(from.run, from.checkpoint));
  if (trained.config.model().trained() != config.model().trained()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--from: the run has trained ", KindOf(trained.config),
                     " and this one trains ", KindOf(config),
                     "; set model.trained, or go on from an `oxbow export --format merged "
                     "--whole-model` of it as model.path: ",
                     from.run));
  }
  OXBOW_ASSIGN_OR_RETURN(const io::DiffusersComponents components,
                         io::OpenDiffusersDirectory(config.model().path()));
  OXBOW_ASSIGN_OR_RETURN(const auto headers,
                         io::ReadComponentHeaders(components.at("transformer")));
  OXBOW_RETURN_IF_ERROR(Annotate(CheckFits(trained, headers, config.model().path()), "--from"));
  run::StartWeights start{.from = absl::StrCat(from.run, ", step ", trained.step), .tensors = {}};
  if (!trained.lora()) {
    start.tensors = std::move(trained.tensors);
    return start;
  }
  auto tensors = run::AdapterFor(config.model().lora(), AdapterOf(trained));
  if (!tensors.ok()) return Annotate(tensors.status(), "--from");
  start.tensors = *std::move(tensors);
  return start;
}

}  // namespace oxbow::cli
