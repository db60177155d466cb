// SPDX-License-Identifier: Apache-2.0
#include "io/adapter_names.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "io/comfy_names.h"

namespace oxbow::io {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr size_t kPatternBytesMax = 1 << 10;
constexpr size_t kPatternsMax = 1 << 16;
constexpr size_t kRepeatsMax = 4;  // Each multiplies the time of a comparison by a name's length.

struct Piece {
  enum class Kind { kLiteral, kAny, kDigit } kind = Kind::kLiteral;
  char literal = 0;
  size_t least = 1;
  bool more = false;

  bool Fits(char c) const {
    return kind == Kind::kAny || (kind == Kind::kDigit ? absl::ascii_isdigit(c) : c == literal);
  }
};

// Nothing for a pattern of another form.
std::optional<std::vector<Piece>> PiecesOf(std::string_view pattern) {
  static constexpr std::string_view kDigits = "[0-9]";
  std::vector<Piece> pieces;
  size_t repeats = 0;
  while (!pattern.empty()) {
    Piece piece;
    if (pattern.starts_with(kDigits)) {
      piece.kind = Piece::Kind::kDigit;
      pattern.remove_prefix(kDigits.size());
    } else if (pattern.front() == '\\' && pattern.size() > 1) {
      piece.literal = pattern[1];
      if (absl::ascii_isalnum(piece.literal)) {
        if (piece.literal != 'd') return std::nullopt;
        piece.kind = Piece::Kind::kDigit;
      }
      pattern.remove_prefix(2);
    } else if (absl::ascii_isalnum(pattern.front()) || pattern.front() == '_' ||
               pattern.front() == '-' || pattern.front() == '.') {
      piece.literal = pattern.front();
      if (piece.literal == '.') piece.kind = Piece::Kind::kAny;
      pattern.remove_prefix(1);
    } else {
      return std::nullopt;
    }
    if (!pattern.empty() && (pattern.front() == '*' || pattern.front() == '+')) {
      piece.least = pattern.front() == '*' ? 0 : 1;
      piece.more = true;
      if (++repeats > kRepeatsMax) return std::nullopt;
      pattern.remove_prefix(1);
    }
    pieces.push_back(piece);
  }
  return pieces;
}

bool Fits(const Piece* piece, const Piece* end, std::string_view text) {
  for (; piece != end && !piece->more; ++piece) {
    if (text.empty() || !piece->Fits(text.front())) return false;
    text.remove_prefix(1);
  }
  if (piece == end) return text.empty();
  for (size_t taken = 0;; ++taken) {
    if (taken >= piece->least && Fits(piece + 1, end, text)) return true;
    if (text.empty() || !piece->Fits(text.front())) return false;
    text.remove_prefix(1);
  }
}

// A leading ^ and a last $ say what holds anyhow, but that ^ is the module's begin.
std::string_view Body(std::string_view pattern) {
  if (pattern.starts_with('^')) pattern.remove_prefix(1);
  if (pattern.ends_with('$') && !pattern.ends_with("\\$")) pattern.remove_suffix(1);
  return pattern;
}

// Keys that do not change what B and A of a file mean.
bool IsWithoutMeaning(const std::string& key) {
  static const std::set<std::string> keys = {"task_type",
                                             "auto_mapping",
                                             "peft_version",
                                             "base_model_name_or_path",
                                             "revision",
                                             "inference_mode",
                                             "r",
                                             "target_modules",
                                             "exclude_modules",
                                             "lora_dropout",
                                             "rank_pattern",
                                             "layers_to_transform",
                                             "layers_pattern",
                                             "megatron_core",
                                             "qalora_group_size",
                                             "eva_config",
                                             "ensure_weight_tying",
                                             "lora_alpha",
                                             "alpha_pattern",
                                             "use_rslora",
                                             "runtime_config"};
  return keys.contains(key);
}

bool SaysNothing(const OrderedJson& value) {
  return value.is_null() || value == false || value == "none" ||
         (value.is_string() && value.get_ref<const std::string&>().empty()) ||
         ((value.is_array() || value.is_object()) && value.empty());
}

// Ways of a first value that leave the base model's weights as they are.
bool KeepsBase(const OrderedJson& value) {
  return value.is_boolean() || value == "gaussian" || value == "orthogonal" || value == "eva";
}

// Not the inside of a list or map, which may be of any depth.
std::string Shown(const OrderedJson& value) {
  return value.is_primitive() ? value.dump(-1, ' ', true) : value.type_name();
}

absl::Status CheckKey(const std::string& key, const OrderedJson& value) {
  const auto refused = [&](const char* why) {
    return absl::FailedPreconditionError(
        absl::StrCat("adapter: ", why, ": ", key, " ", Shown(value)));
  };
  if (IsWithoutMeaning(key) || SaysNothing(value)) return absl::OkStatus();
  if (key == "peft_type") {
    return value == "LORA" ? absl::OkStatus() : refused("not a plain LoRA");
  }
  if (key == "init_lora_weights") {
    return KeepsBase(value) ? absl::OkStatus()
                            : refused(
                                  "its beginning changed the base model's weights, so that it "
                                  "is of another base model");
  }
  return refused("not a plain LoRA, or a key that is not known and may matter");
}

absl::StatusOr<double> AlphaOf(const std::string& key, const OrderedJson& value) {
  const double alpha = value.is_number() ? value.get<double>() : 0;
  if (alpha > 0 && std::isfinite(alpha)) return alpha;
  return absl::DataLossError(
      absl::StrCat("adapter: not a positive number: ", key, " ", Shown(value)));
}

absl::Status ReadPatterns(const OrderedJson& patterns, DeclaredStrength& strength) {
  if (patterns.is_null()) return absl::OkStatus();
  if (!patterns.is_object() || patterns.size() > kPatternsMax) {
    return absl::DataLossError("adapter: alpha_pattern is no map of names to numbers");
  }
  for (const auto& [pattern, value] : patterns.items()) {
    if (pattern.size() > kPatternBytesMax || !PiecesOf(Body(pattern))) {
      return absl::FailedPreconditionError(absl::StrCat(
          "adapter: a pattern of a form that is not read; write the modules' names: alpha_pattern ",
          pattern));
    }
    OXBOW_ASSIGN_OR_RETURN(const double alpha, AlphaOf("alpha_pattern " + pattern, value));
    strength.patterns.emplace_back(pattern, alpha);
  }
  return absl::OkStatus();
}

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

bool FitsPattern(std::string_view pattern, std::string_view module) {
  const auto pieces = PiecesOf(Body(pattern));
  if (!pieces) return false;
  const Piece* const begin = pieces->data();
  const Piece* const end = begin + pieces->size();
  if (Fits(begin, end, module)) return true;
  if (pattern.starts_with('^')) return false;
  for (size_t dot = module.find('.'); dot != std::string_view::npos;
       dot = module.find('.', dot + 1)) {
    if (Fits(begin, end, module.substr(dot + 1))) return true;
  }
  return false;
}

double DeclaredStrength::ScaleOf(std::string_view module, int64_t rank) const {
  const auto found = std::find_if(patterns.begin(), patterns.end(), [&](const auto& entry) {
    return FitsPattern(entry.first, module);
  });
  const double own = found == patterns.end() ? alpha : found->second;
  const auto size = static_cast<double>(rank);
  return own / (root ? std::sqrt(size) : size);
}

absl::StatusOr<DeclaredStrength> ParseStrength(const std::string& json, std::string_view prefix) {
  const OrderedJson all = OrderedJson::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!all.is_object()) return absl::DataLossError("adapter: what it declares is no JSON object");
  DeclaredStrength strength;
  for (const auto& [name, value] : all.items()) {
    if (!name.starts_with(prefix)) continue;
    const std::string key = name.substr(prefix.size());
    OXBOW_RETURN_IF_ERROR(CheckKey(key, value));
    if (key == "lora_alpha") {
      OXBOW_ASSIGN_OR_RETURN(strength.alpha, AlphaOf(key, value));
    } else if (key == "use_rslora") {
      strength.root = value == true;
    } else if (key == "alpha_pattern") {
      OXBOW_RETURN_IF_ERROR(ReadPatterns(value, strength));
    }
  }
  if (strength.alpha > 0) return strength;
  return absl::DataLossError("adapter: no lora_alpha in what it declares");
}

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
