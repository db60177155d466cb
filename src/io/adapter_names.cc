// SPDX-License-Identifier: Apache-2.0
#include "io/adapter_names.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "io/comfy_names.h"

namespace oxbow::io {
namespace {

constexpr char kWeight[] = ".weight";

struct Ending {
  std::string_view text;
  AdapterPart part;
};

constexpr std::array kEndings = {
    Ending{".lora_A.weight", AdapterPart::kDown},
    Ending{".lora_B.weight", AdapterPart::kUp},
    Ending{".lora_A.default.weight", AdapterPart::kDown},
    Ending{".lora_B.default.weight", AdapterPart::kUp},
    Ending{".lora_down.weight", AdapterPart::kDown},
    Ending{".lora_up.weight", AdapterPart::kUp},
    Ending{".lora.down.weight", AdapterPart::kDown},
    Ending{".lora.up.weight", AdapterPart::kUp},
    Ending{".lora_linear_layer.down.weight", AdapterPart::kDown},
    Ending{".lora_linear_layer.up.weight", AdapterPart::kUp},
    Ending{".alpha", AdapterPart::kAlpha},
};

struct Foreign {
  std::string_view text;
  const char* what;
  bool at_end = false;  // Else somewhere in a name.
};

constexpr std::array kForeign = {
    Foreign{"dora_scale", "of DoRA, which is not read"},
    Foreign{"lora_magnitude_vector", "of DoRA, which is not read"},
    Foreign{"hada_w", "of LoHa, which is not read"},
    Foreign{"lokr_", "of LoKr, which is not read"},
    Foreign{"oft_", "of OFT, which is not read"},
    Foreign{"lora_mid", "of LoCon with a third matrix, which is not read"},
    Foreign{"lora_embedding_", "of an embedding, which has no adapter here"},
    Foreign{"modules_to_save", "a whole weight beside the adapter, which is not read"},
    Foreign{".diff", "a whole weight beside the adapter, which is not read", true},
    Foreign{".diff_b", "a bias, and adapters have none here", true},
    Foreign{".set_weight", "a whole weight beside the adapter, which is not read", true},
    Foreign{".bias", "a bias, and adapters have none here", true},
};

constexpr std::array<std::string_view, 5> kTextEncoders = {"text_encoder", "lora_te", "te1_",
                                                           "te2_", "conditioner."};

constexpr std::array<std::string_view, 9> kPrefixes = {
    "base_model.model.", "model.diffusion_model.", "diffusion_model.", "transformer.", "model.",
    "lora_unet_",        "lora_transformer_",      "lycoris_",         "unet."};

absl::Status Refused(const std::string& what, const std::string& name) {
  return absl::FailedPreconditionError(absl::StrCat("adapter: ", what, ": ", name));
}

std::string Underscored(std::string name) {
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

}  // namespace

absl::StatusOr<AdapterKey> ParseAdapterKey(const std::string& name) {
  for (const std::string_view prefix : kTextEncoders) {
    if (name.starts_with(prefix)) {
      return Refused("changes a text encoder, too, and only the transformer's is read", name);
    }
  }
  for (const Foreign& foreign : kForeign) {
    const bool is = foreign.at_end ? name.ends_with(foreign.text)
                                   : name.find(foreign.text) != std::string::npos;
    if (is) return Refused(foreign.what, name);
  }
  for (const Ending& ending : kEndings) {
    if (!name.ends_with(ending.text) || name.size() == ending.text.size()) continue;
    return AdapterKey{name.substr(0, name.size() - ending.text.size()), ending.part};
  }
  return Refused("not a matrix of a LoRA", name);
}

AdapterNames::AdapterNames(const std::string& transformer_class,
                           const std::map<std::string, TensorHeader>& tensors) {
  const ComfyNames* const natives = ComfyNamesOf(transformer_class);
  const auto rows_of = [&](const std::string& module) -> std::optional<ModuleRows> {
    const auto found = tensors.find(module + kWeight);
    if (found == tensors.end() || found->second.shape.size() != 2) return std::nullopt;
    return ModuleRows{module, found->second.shape[0], found->second.shape[1]};
  };
  for (const auto& [name, header] : tensors) {
    if (!name.ends_with(kWeight) || header.shape.size() != 2) continue;
    const std::string module = name.substr(0, name.size() - std::string_view(kWeight).size());
    Insert(module, {.rows = {*rows_of(module)}});
    if (natives == nullptr) continue;
    for (const NativeModule& native : natives->modules) {
      const auto number = NumberIn(native.parts.front(), module);
      if (!number) continue;
      ModulesOfKey modules{.rows = {}, .halves_swapped = native.halves_swapped};
      for (const std::string_view part : native.parts) {
        const auto rows = rows_of(WithNumber(part, *number));
        if (rows && (modules.rows.empty() || rows->columns == modules.rows.front().columns)) {
          modules.rows.push_back(*rows);
        }
      }
      if (modules.rows.size() == native.parts.size()) {
        Insert(WithNumber(native.name, *number), modules);
      }
    }
  }
}

void AdapterNames::Insert(const std::string& name, const ModulesOfKey& modules) {
  dotted_.emplace(name, modules);
  const auto [place, first] = underscored_.emplace(Underscored(name), modules);
  if (!first) place->second.rows.clear();
}

absl::StatusOr<ModulesOfKey> AdapterNames::Find(const std::string& module) const {
  std::string_view name = module;
  for (size_t round = 0; round <= kPrefixes.size(); ++round) {
    if (const auto found = dotted_.find(std::string(name)); found != dotted_.end()) {
      return found->second;
    }
    const auto found = underscored_.find(std::string(name));
    if (found != underscored_.end() && found->second.rows.empty()) {
      return Refused("could be one of two modules of the network", module);
    }
    if (found != underscored_.end()) return found->second;
    const auto prefix = std::find_if(kPrefixes.begin(), kPrefixes.end(),
                                     [&](std::string_view p) { return name.starts_with(p); });
    if (prefix == kPrefixes.end()) break;
    name.remove_prefix(prefix->size());
  }
  return Refused("the network has no such linear layer", module);
}

}  // namespace oxbow::io
