// SPDX-License-Identifier: Apache-2.0
#include "config/memory_parts.h"

#include <google/protobuf/descriptor.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/first_part.h"

namespace oxbow::config {
namespace {

using MemoryPart = bool MemoryParts::*;

constexpr std::pair<const char*, MemoryPart> kParts[] = {
    {"recompute", &MemoryParts::recompute},
    {"int8", &MemoryParts::int8},
    {"guided_apart", &MemoryParts::guided_apart},
    {"offload_inputs", &MemoryParts::offload_inputs},
    {"shard_gradients", &MemoryParts::shard_gradients},
    {"offload_optimizer", &MemoryParts::offload_optimizer},
    {"offload_average", &MemoryParts::offload_average},
    {"offload_weights", &MemoryParts::offload_weights},
    {"whole_optimizer", &MemoryParts::whole_optimizer}};

constexpr char kFast[] = "fast";

MemoryPart PartNamed(const std::string& name) {
  const auto found = std::find_if(std::begin(kParts), std::end(kParts),
                                  [&](const auto& part) { return part.first == name; });
  return found == std::end(kParts) ? nullptr : found->second;
}

// The parts by name.
absl::StatusOr<MemoryParts> PartsIn(const std::string& text) {
  MemoryParts parts;
  for (const absl::string_view piece : absl::StrSplit(text, '+')) {
    const MemoryPart part = PartNamed(std::string(absl::StripAsciiWhitespace(piece)));
    if (part == nullptr) {
      const std::string names =
          absl::StrJoin(kParts, ", ", [](std::string* out, const auto& one) { *out += one.first; });
      return absl::InvalidArgumentError(
          absl::StrCat("must be auto, fast, small, smallest, or parts joined by +: ", names,
                       ", got \"", FirstPart(text, 100), "\""));
    }
    parts.*part = true;
  }
  return parts;
}

bool IsLora(const v1::ModelConfig& model) { return model.trained() == v1::TRAINED_PART_LORA; }

// The parts of a ladder, from the cheapest on.
std::vector<MemoryPart> LadderOf(const v1::ModelConfig& model) {
  const bool on_gpu = model.device() != "cpu";
  std::vector<MemoryPart> ladder = {&MemoryParts::recompute};
  if (IsLora(model)) {
    if (!model.lora().merge_for_rollouts()) ladder.push_back(&MemoryParts::int8);
    if (on_gpu) {
      ladder.insert(ladder.end(), {&MemoryParts::guided_apart, &MemoryParts::offload_inputs});
    }
  } else if (on_gpu) {
    ladder.insert(ladder.end(), {&MemoryParts::shard_gradients, &MemoryParts::offload_optimizer,
                                 &MemoryParts::offload_average});
  }
  if (on_gpu) ladder.push_back(&MemoryParts::offload_weights);
  return ladder;
}

// A key of a section that is a part now: the part, where its value is not the default of old.
void Translate(const v1::FormerKey& former, YAML::Node& section, MemoryParts& parts, bool& any) {
  for (const auto& pair : section) {
    if (!pair.first.IsScalar() || pair.first.Scalar() != former.key()) continue;
    any = true;
    const bool other = pair.second.IsScalar() && pair.second.Scalar() != former.value();
    if (const MemoryPart part = PartNamed(former.part()); other && part != nullptr)
      parts.*part = true;
  }
  section.remove(former.key());
}

}  // namespace

absl::StatusOr<MemoryParts> ParseMemory(const v1::ModelConfig& model) {
  const std::string& text = model.memory();
  if (text.empty() || text == kMemoryAuto || text == kFast) return MemoryParts();
  if (text != "small" && text != "smallest") return PartsIn(text);
  std::vector<MemoryParts> rungs = MemoryRungs(model);
  if (text == "small") {
    std::erase_if(rungs, [](const MemoryParts& rung) {
      return rung.guided_apart || rung.offload_average || rung.offload_weights;
    });
  }
  return rungs.back();
}

MemoryParts MemoryOf(const v1::ModelConfig& model) {
  return ParseMemory(model).value_or(MemoryParts());
}

v1::StorageDType RolloutType(const v1::ModelConfig& model) {
  switch (model.rollout_dtype()) {
    case v1::ROLLOUT_D_TYPE_F32:
      return v1::STORAGE_D_TYPE_F32;
    case v1::ROLLOUT_D_TYPE_BF16:
      return v1::STORAGE_D_TYPE_BF16;
    default:
      return model.compute_dtype();
  }
}

v1::RunConfig AsWorkersCompute(v1::RunConfig config) {
  config.mutable_model()->set_compute_dtype(RolloutType(config.model()));
  return config;
}

bool LendsBase(const v1::ModelConfig& model) {
  const MemoryParts memory = MemoryOf(model);
  return IsLora(model) && model.device().starts_with("cuda") && !memory.int8 &&
         !memory.offload_weights && RolloutType(model) == model.compute_dtype();
}

std::string MemoryName(const MemoryParts& parts) {
  std::vector<std::string> names;
  for (const auto& [name, part] : kParts) {
    if (parts.*part) names.emplace_back(name);
  }
  return names.empty() ? kFast : absl::StrJoin(names, " + ");
}

std::string NextMemoryPart(const v1::RunConfig& config) {
  const MemoryParts has = MemoryOf(config.model());
  for (const MemoryPart part : LadderOf(config.model())) {
    const bool helps = part == &MemoryParts::shard_gradients   ? config.learner().ranks() > 1
                       : part == &MemoryParts::guided_apart    ? config.sampling().guidance() != 1
                       : part == &MemoryParts::offload_average ? config.ema().enabled()
                                                               : true;
    MemoryParts one;
    one.*part = true;
    if (helps && !(has.*part)) return MemoryName(one);
  }
  return "";
}

std::vector<MemoryParts> MemoryRungs(const v1::ModelConfig& model) {
  std::vector<MemoryParts> rungs(1);
  for (const MemoryPart part : LadderOf(model)) {
    rungs.push_back(rungs.back());
    rungs.back().*part = true;
  }
  return rungs;
}

void TranslateMemory(YAML::Node& root) {
  MemoryParts parts;
  bool any = false;
  const google::protobuf::Descriptor& config = *v1::RunConfig::descriptor();
  for (const auto& pair : root) {
    const auto* field =
        pair.first.IsScalar() ? config.FindFieldByName(pair.first.Scalar()) : nullptr;
    if (field == nullptr || field->message_type() == nullptr || !pair.second.IsMap()) continue;
    YAML::Node section = pair.second;
    for (const v1::FormerKey& former :
         field->message_type()->options().GetRepeatedExtension(v1::former)) {
      if (!former.part().empty()) Translate(former, section, parts, any);
    }
  }
  if (any) root["model"]["memory"] = MemoryName(parts);
}

}  // namespace oxbow::config
