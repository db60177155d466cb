#include "config/fingerprint.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <string>

#include "absl/strings/str_replace.h"
#include "base/sha256.h"
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

}  // namespace oxbow::config
