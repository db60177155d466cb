// SPDX-License-Identifier: Apache-2.0
#include "config/chosen_method.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "config/yaml_message.h"

namespace oxbow::config {
namespace {

namespace pb = google::protobuf;

double NumberOf(const FieldValue& value) {
  if (const bool* flag = std::get_if<bool>(&value)) return *flag ? 1 : 0;
  if (const double* number = std::get_if<double>(&value)) return *number;
  if (const uint64_t* number = std::get_if<uint64_t>(&value)) return static_cast<double>(*number);
  return std::get<const pb::EnumValueDescriptor*>(value)->number() - 1;
}

}  // namespace

rl::MethodKind KindOf(const v1::MethodConfig& method) {
  if (method.name() == v1::METHOD_NAME_UNSPECIFIED) return rl::MethodKind::kGrpo;
  return static_cast<rl::MethodKind>(static_cast<int>(method.name()) - 1);
}

const rl::MethodFacts& ChosenMethod(const v1::MethodConfig& method) {
  return rl::FactsOf(KindOf(method));
}

std::map<std::string, double> OwnSettings(const v1::MethodConfig& method) {
  const pb::FieldDescriptor* const own =
      v1::MethodConfig::descriptor()->FindFieldByName(ChosenMethod(method).name);
  std::map<std::string, double> settings;
  if (own == nullptr) return settings;
  const pb::Message& section = method.GetReflection()->GetMessage(method, own);
  for (int i = 0; i < section.GetDescriptor()->field_count(); ++i) {
    const pb::FieldDescriptor& field = *section.GetDescriptor()->field(i);
    settings[std::string(field.name())] = NumberOf(ValueAt(section, field));
  }
  return settings;
}

std::string MethodsThat(bool (*is)(const rl::MethodFacts&), const char* last) {
  std::vector<const char*> names;
  for (const rl::MethodFacts& facts : rl::AllMethods()) {
    if (is(facts)) names.push_back(facts.name);
  }
  std::string list;
  for (size_t i = 0; i < names.size(); ++i) {
    absl::StrAppend(&list, i == 0 ? "" : i + 1 == names.size() ? last : ", ", names[i]);
  }
  return list;
}

std::string FinalLatentMethods(const char* last) {
  return MethodsThat([](const rl::MethodFacts& method) { return !method.needs_density(); }, last);
}

}  // namespace oxbow::config
