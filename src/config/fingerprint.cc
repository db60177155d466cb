// SPDX-License-Identifier: Apache-2.0
#include "config/fingerprint.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <span>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/sha256.h"
#include "config/memory_parts.h"
#include "config/yaml_message.h"

namespace oxbow::config {

namespace {

namespace pb = google::protobuf;

void AddChanged(const pb::Message& before, const pb::Message& now, const std::string& prefix,
                std::vector<ChangedKey>& changed) {
  for (int i = 0; i < before.GetDescriptor()->field_count(); ++i) {
    const pb::FieldDescriptor& field = *before.GetDescriptor()->field(i);
    if (IsLeftOut(field)) continue;
    const std::string key = absl::StrCat(prefix, field.name());
    if (IsSection(field)) {
      AddChanged(before.GetReflection()->GetMessage(before, &field),
                 now.GetReflection()->GetMessage(now, &field), absl::StrCat(key, "."), changed);
      continue;
    }
    ChangedKey values{key, FieldText(before, field), FieldText(now, field)};
    if (values.before != values.now) changed.push_back(std::move(values));
  }
}

void AddFree(const pb::Descriptor& section, const std::string& prefix,
             std::vector<std::string>& keys) {
  for (int i = 0; i < section.field_count(); ++i) {
    const pb::FieldDescriptor& field = *section.field(i);
    const std::string key = absl::StrCat(prefix, field.name());
    if (IsComparedByContent(field)) continue;
    if (IsLeftOut(field)) {
      keys.push_back(IsSection(field) ? absl::StrCat(key, ".*") : key);
    } else if (IsSection(field)) {
      AddFree(*field.message_type(), absl::StrCat(key, "."), keys);
    }
  }
}

// Left out by now. A path is compared by what it leads to, unless that is for evaluation alone.
constexpr const char* kFormerFields[] = {
    "oxbow.v1.RunSection.name",   "oxbow.v1.RunSection.directory", "oxbow.v1.RewardConfig.observed",
    "oxbow.v1.PromptConfig.eval", "oxbow.v1.ModelConfig.path",     "oxbow.v1.PromptConfig.train"};
constexpr const char* kContentFields[] = {"oxbow.v1.ModelConfig.path",
                                          "oxbow.v1.PromptConfig.train"};

bool Names(std::span<const char* const> fields, const pb::FieldDescriptor& field) {
  return std::find(fields.begin(), fields.end(), field.full_name()) != fields.end();
}

// The part of model.memory that changes results, in the place and with the text of its former key.
std::string MemoryText(const pb::FieldDescriptor& field, const pb::Message& model) {
  if (field.number() != v1::ModelConfig::kMemoryFieldNumber ||
      field.containing_type() != v1::ModelConfig::descriptor()) {
    return "";
  }
  const bool int8 = MemoryOf(dynamic_cast<const v1::ModelConfig&>(model)).int8;
  return int8 ? "base_weights: BASE_WEIGHTS_INT8\n" : "";
}

// Whether a field is left out of fingerprints of this age.
bool LeftOut(const pb::FieldDescriptor& field, FingerprintAge age) {
  if (Names(kFormerFields, field)) return age == FingerprintAge::kPresent;
  return field.options().GetExtension(v1::fingerprint).left_out();
}

// A message's text as it grows, for fingerprints of one age.
struct Writing {
  FingerprintAge age;
  std::string text;
};

void AppendFields(const pb::Message& message, const std::string& indent, Writing& writing);

// The shortest of 15 and 17 digits that reads back as the same number.
std::string DoubleText(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.15g", value);
  if (std::strtod(text, nullptr) != value) std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

// One value of a field that holds no section.
std::string ValueText(const FieldValue& value) {
  if (const bool* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const double* number = std::get_if<double>(&value)) return DoubleText(*number);
  if (const uint64_t* number = std::get_if<uint64_t>(&value)) return absl::StrCat(*number);
  if (const std::string* text = std::get_if<std::string>(&value)) {
    return absl::StrCat("\"", absl::CEscape(*text), "\"");
  }
  return std::get<const pb::EnumValueDescriptor*>(value)->name();
}

// As YAML writes it, for a comparison with `unset_as`.
std::string YamlText(const pb::Message& message, const pb::FieldDescriptor& field) {
  const FieldValue value = ValueAt(message, field);
  if (const auto* choice = std::get_if<const pb::EnumValueDescriptor*>(&value)) {
    return EnumText(**choice);
  }
  const std::string* const text = std::get_if<std::string>(&value);
  return text != nullptr ? *text : ValueText(value);
}

// A field of a type, or a key that was one.
struct Part {
  const pb::FieldDescriptor* field = nullptr;
  const v1::FormerKey* former = nullptr;
};

std::map<uint32_t, Part> PartsByNumber(const pb::Descriptor& type) {
  std::map<uint32_t, Part> parts;
  for (int i = 0; i < type.field_count(); ++i) {
    parts[static_cast<uint32_t>(type.field(i)->number())].field = type.field(i);
  }
  for (const v1::FormerKey& key : type.options().GetRepeatedExtension(v1::former)) {
    parts[key.number()].former = &key;
  }
  return parts;
}

// Whether a value enters. Without `unset_as`, one that is 0, false or empty does not.
bool Enters(const pb::Message& message, const pb::FieldDescriptor& field,
            const std::string& unset_as) {
  const bool set = message.GetReflection()->HasField(message, &field);
  if (unset_as.empty() || field.cpp_type() == pb::FieldDescriptor::CPPTYPE_ENUM) {
    return set && (unset_as.empty() || YamlText(message, field) != unset_as);
  }
  return YamlText(message, field) != unset_as;
}

void AppendSection(const std::string& name, const pb::Message& section, const std::string& indent,
                   Writing& writing) {
  absl::StrAppend(&writing.text, indent, name, " {\n");
  AppendFields(section, indent + "  ", writing);
  absl::StrAppend(&writing.text, indent, "}\n");
}

void AppendRepeated(const pb::Message& message, const pb::FieldDescriptor& field,
                    const std::string& indent, Writing& writing) {
  const pb::Reflection& r = *message.GetReflection();
  for (int i = 0; i < r.FieldSize(message, &field); ++i) {
    if (field.cpp_type() == pb::FieldDescriptor::CPPTYPE_MESSAGE) {
      AppendSection(field.name(), r.GetRepeatedMessage(message, &field, i), indent, writing);
    } else {
      absl::StrAppend(&writing.text, indent, field.name(), ": ",
                      ValueText(ValueAt(message, field, i)), "\n");
    }
  }
}

void AppendFields(const pb::Message& message, const std::string& indent, Writing& writing) {
  std::string& text = writing.text;
  for (const auto& [number, part] : PartsByNumber(*message.GetDescriptor())) {
    if (part.former != nullptr) {
      if (part.former->text().empty()) continue;
      absl::StrAppend(&text, indent, part.former->key(), ": ", part.former->text(), "\n");
      continue;
    }
    const pb::FieldDescriptor* const field = part.field;
    const v1::FingerprintRules& rules = field->options().GetExtension(v1::fingerprint);
    if (const std::string parts = MemoryText(*field, message); !parts.empty()) {
      absl::StrAppend(&text, indent, parts);
    } else if (!rules.constant().empty()) {
      absl::StrAppend(&text, indent, field->name(), ": \"", absl::CEscape(rules.constant()),
                      "\"\n");
    } else if (LeftOut(*field, writing.age)) {
      continue;
    } else if (field->is_repeated()) {
      AppendRepeated(message, *field, indent, writing);
    } else if (field->cpp_type() == pb::FieldDescriptor::CPPTYPE_MESSAGE) {
      const pb::Message& section = message.GetReflection()->GetMessage(message, field);
      if (rules.unset_as() == "{}" && FingerprintText(section, writing.age).empty()) continue;
      AppendSection(field->name(), section, indent, writing);
    } else if (Enters(message, *field, rules.unset_as())) {
      absl::StrAppend(&text, indent, field->name(), ": ", ValueText(ValueAt(message, *field)),
                      "\n");
    }
  }
}

// Names of keys and values that have changed. Checkpoints were made under the former ones.
std::string WithFormerNames(const std::string& text) {
  return absl::StrReplaceAll(text, {{"  dynamic_sampling_max: ", "  refill_max: "},
                                    {" CORRECTION_BEHAVIOUR_CLIP\n", " CORRECTION_MROUEH\n"}});
}

}  // namespace

v1::RunConfig AsFormerly(v1::RunConfig config) {
  v1::LoraConfig& lora = *config.mutable_model()->mutable_lora();
  if (!lora.targets().empty()) return config;
  for (const char* target :
       {"attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj", "attn.to_add_out", "attn.to_q",
        "attn.to_k", "attn.to_v", "attn.to_out.0"}) {
    lora.add_targets(target);
  }
  return config;
}

bool IsLeftOut(const pb::FieldDescriptor& field) {
  return LeftOut(field, FingerprintAge::kPresent);
}

bool IsComparedByContent(const pb::FieldDescriptor& field) { return Names(kContentFields, field); }

void CopyFormerFields(const v1::RunConfig& from, v1::RunConfig& to) {
  to.mutable_run()->set_name(from.run().name());
  to.mutable_run()->set_directory(from.run().directory());
  to.mutable_model()->set_path(from.model().path());
  to.mutable_prompts()->set_train(from.prompts().train());
  to.mutable_prompts()->set_eval(from.prompts().eval());
  *to.mutable_reward()->mutable_observed() = from.reward().observed();
}

std::string FingerprintText(const pb::Message& message, FingerprintAge age) {
  Writing writing{.age = age, .text = ""};
  AppendFields(message, "", writing);
  return std::move(writing.text);
}

std::string FingerprintOf(const v1::RunConfig& config, FingerprintAge age) {
  return Sha256Hex(WithFormerNames(FingerprintText(AsFormerly(config), age)));
}

std::vector<ChangedKey> ChangedKeys(const v1::RunConfig& before, const v1::RunConfig& now) {
  std::vector<ChangedKey> changed;
  AddChanged(AsFormerly(before), AsFormerly(now), "", changed);
  if (MemoryOf(before.model()).int8 != MemoryOf(now.model()).int8) {
    changed.push_back({"model.memory", before.model().memory(), now.model().memory()});
  }
  return changed;
}

std::vector<ChangedKey> ChangedMeasures(const v1::RunConfig& before, const v1::RunConfig& now) {
  std::vector<ChangedKey> changed;
  const auto add = [&](const char* key, const pb::Message& a, const pb::Message& b,
                       const char* name) {
    const pb::FieldDescriptor& field = *a.GetDescriptor()->FindFieldByName(name);
    ChangedKey values{absl::StrCat(key, name), FieldText(a, field), FieldText(b, field)};
    if (values.before != values.now) changed.push_back(std::move(values));
  };
  add("prompts.", before.prompts(), now.prompts(), "eval");
  add("reward.", before.reward(), now.reward(), "observed");
  for (const char* name : {"images", "steps", "use_ema", "solver", "height", "width"}) {
    add("eval.", before.eval(), now.eval(), name);
  }
  return changed;
}

std::vector<std::string> FreeKeys() {
  std::vector<std::string> keys;
  AddFree(*v1::RunConfig::descriptor(), "", keys);
  return keys;
}

}  // namespace oxbow::config
