// SPDX-License-Identifier: Apache-2.0
#include "config/changed_keys.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "config/fingerprint.h"
#include "config/memory_parts.h"
#include "config/yaml_message.h"

namespace oxbow::config {
namespace {

namespace pb = google::protobuf;

bool IsSection(const pb::FieldDescriptor& field) {
  return !field.is_repeated() && field.cpp_type() == pb::FieldDescriptor::CPPTYPE_MESSAGE;
}

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

}  // namespace

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
