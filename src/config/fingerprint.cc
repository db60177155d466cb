#include "config/fingerprint.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/sha256.h"
#include "config/field_text.h"
#include "config/yaml_message.h"

namespace oxbow::config {
namespace {

namespace pb = google::protobuf;

void ApplyRules(pb::Message& message) {
  const pb::Reflection& reflection = *message.GetReflection();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const pb::FieldDescriptor& field = *message.GetDescriptor()->field(i);
    const v1::FingerprintRules& rules = field.options().GetExtension(v1::fingerprint);
    if (!rules.constant().empty()) {
      reflection.SetString(&message, &field, rules.constant());
    } else if (rules.left_out()) {
      reflection.ClearField(&message, &field);
    } else if (!rules.unset_as().empty()) {
      const std::string value = EnumText(*reflection.GetEnum(message, &field));
      if (value == rules.unset_as()) reflection.ClearField(&message, &field);
    } else if (!field.is_repeated() && field.cpp_type() == pb::FieldDescriptor::CPPTYPE_MESSAGE) {
      ApplyRules(*reflection.MutableMessage(&message, &field));
    }
  }
}

bool IsSection(const pb::FieldDescriptor& field) {
  return !field.is_repeated() && field.cpp_type() == pb::FieldDescriptor::CPPTYPE_MESSAGE;
}

bool IsFree(const pb::FieldDescriptor& field) {
  return field.options().GetExtension(v1::fingerprint).left_out();
}

void AddChanged(const pb::Message& before, const pb::Message& now, const std::string& prefix,
                std::vector<ChangedKey>& changed) {
  for (int i = 0; i < before.GetDescriptor()->field_count(); ++i) {
    const pb::FieldDescriptor& field = *before.GetDescriptor()->field(i);
    if (IsFree(field)) continue;
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
    if (IsFree(field)) {
      keys.push_back(IsSection(field) ? absl::StrCat(key, ".*") : key);
    } else if (IsSection(field)) {
      AddFree(*field.message_type(), absl::StrCat(key, "."), keys);
    }
  }
}

// Names of keys and values that have changed. Checkpoints were made under the former ones.
std::string WithFormerNames(const std::string& text) {
  return absl::StrReplaceAll(text, {{"  dynamic_sampling_max: ", "  refill_max: "},
                                    {" CORRECTION_BEHAVIOUR_CLIP\n", " CORRECTION_MROUEH\n"}});
}

}  // namespace

std::string FingerprintOf(v1::RunConfig config) {
  ApplyRules(config);
  return Sha256Hex(WithFormerNames(config.DebugString()));
}

std::vector<ChangedKey> ChangedKeys(const v1::RunConfig& before, const v1::RunConfig& now) {
  std::vector<ChangedKey> changed;
  AddChanged(before, now, "", changed);
  return changed;
}

std::vector<std::string> FreeKeys() {
  std::vector<std::string> keys;
  AddFree(*v1::RunConfig::descriptor(), "", keys);
  return keys;
}

}  // namespace oxbow::config
