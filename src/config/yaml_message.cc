// SPDX-License-Identifier: Apache-2.0
#include "config/yaml_message.h"

#include <google/protobuf/descriptor.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <cmath>
#include <limits>
#include <set>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/first_part.h"
#include "base/nearest_name.h"
#include "base/status_macros.h"
#include "config/device_plan.h"
#include "config/key_names.h"

namespace oxbow::config {
namespace {

namespace pb = google::protobuf;
using pb::FieldDescriptor;

// Bytes of an error, which is one line whatever keys and values hold.
constexpr size_t kErrorMax = 4096;

// A place in the document, for error messages.
struct Spot {
  const YamlSource& source;
  std::string key;  // Dotted.

  absl::Status Error(const YAML::Node& node, const std::string& reason) const {
    return absl::InvalidArgumentError(
        FirstPart(absl::StrCat(source.Place(node), ": ", key, ": ", reason), kErrorMax));
  }
};

std::string Join(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : absl::StrCat(prefix, ".", name);
}

std::string KindOf(const YAML::Node& node) {
  switch (node.Type()) {
    case YAML::NodeType::Map:
      return "a section";
    case YAML::NodeType::Sequence:
      return "a list";
    case YAML::NodeType::Scalar:
      return absl::StrCat("\"", node.Scalar(), "\"");
    default:
      return "nothing";
  }
}

std::string UnknownKey(const std::string& name, const pb::Descriptor& type) {
  const std::vector<std::string> names = KeysOf(type);
  const std::string nearest = NearestName(name, names);
  if (nearest.empty()) {
    const std::vector<std::string> meant = KeysMeantBy(name, type);
    if (!meant.empty() && meant.size() <= 3) {
      return absl::StrCat("unknown key; did you mean `", absl::StrJoin(meant, "` or `"), "`?");
    }
  }
  return nearest.empty() ? absl::StrCat("unknown key; known here: ", absl::StrJoin(names, ", "))
                         : absl::StrCat("unknown key; did you mean `", nearest, "`?");
}

// A key that no field of the type has. It may be one of former versions with the value that is
// left.
absl::Status OtherKey(const std::string& name, const YAML::Node& key, const YAML::Node& value,
                      const Spot& spot, const pb::Descriptor& type) {
  for (const v1::FormerKey& former : type.options().GetRepeatedExtension(v1::former)) {
    if (former.key() != name) continue;
    const std::string text = value.IsScalar() ? value.Scalar() : "";
    double given = 0, left = 0;
    const bool equal = absl::SimpleAtod(text, &given) && absl::SimpleAtod(former.value(), &left)
                           ? given == left
                           : text == former.value();
    if (equal || former.any()) return absl::OkStatus();
    if (!former.part().empty()) {
      return spot.Error(
          key,
          absl::StrCat("is a part of model.memory now: write model.memory: ... + ", former.part()));
    }
    return spot.Error(key, absl::StrCat("this key is gone, and ", former.value(),
                                        " is what remains of it: remove the key"));
  }
  return spot.Error(key, UnknownKey(name, type));
}

const pb::EnumValueDescriptor* FindEnumValue(const pb::EnumDescriptor& type,
                                             const std::string& text) {
  for (int i = 0; i < type.value_count(); ++i) {
    if (type.value(i)->number() != 0 && EnumText(*type.value(i)) == text) return type.value(i);
  }
  return nullptr;
}

// Sets a field (or appends to it, if repeated) from a scalar's text. False if the text does not
// fit.
bool PutScalar(const std::string& text, const FieldDescriptor& field, pb::Message* message) {
  const pb::Reflection& reflection = *message->GetReflection();
  const auto put = [&](auto set, auto add, const auto& value) {
    field.is_repeated() ? (reflection.*add)(message, &field, value)
                        : (reflection.*set)(message, &field, value);
    return true;
  };
  using R = pb::Reflection;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      field.is_repeated() ? reflection.AddString(message, &field, text)
                          : reflection.SetString(message, &field, text);
      return true;
    case FieldDescriptor::CPPTYPE_BOOL:
      if (text != "true" && text != "false") return false;
      return put(&R::SetBool, &R::AddBool, text == "true");
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      double value = 0;
      if (!absl::SimpleAtod(text, &value) || !std::isfinite(value)) return false;
      return put(&R::SetDouble, &R::AddDouble, value);
    }
    case FieldDescriptor::CPPTYPE_UINT32: {
      uint32_t value = kAuto;
      const bool fits = TakesAuto(field)
                            ? text == kAutoText || (absl::SimpleAtoi(text, &value) && value < kAuto)
                            : absl::SimpleAtoi(text, &value);
      return fits && put(&R::SetUInt32, &R::AddUInt32, value);
    }
    case FieldDescriptor::CPPTYPE_UINT64: {
      uint64_t value = 0;
      return absl::SimpleAtoi(text, &value) && put(&R::SetUInt64, &R::AddUInt64, value);
    }
    case FieldDescriptor::CPPTYPE_ENUM: {
      const pb::EnumValueDescriptor* value = FindEnumValue(*field.enum_type(), text);
      return value != nullptr && put(&R::SetEnum, &R::AddEnum, value);
    }
    default:
      OXBOW_CHECK(false) << "config.proto has a field type the loader does not know: "
                         << field.full_name();
      return false;
  }
}

absl::Status MergeScalar(const YAML::Node& node, const Spot& spot, const FieldDescriptor& field,
                         pb::Message* message) {
  if (!node.IsScalar() || !PutScalar(node.Scalar(), field, message)) {
    return spot.Error(node, absl::StrCat("expected ", ExpectedOf(field), ", got ", KindOf(node)));
  }
  return absl::OkStatus();
}

absl::Status MergeList(const YAML::Node& node, const Spot& spot, const FieldDescriptor& field,
                       pb::Message* message) {
  if (!node.IsSequence()) {
    return spot.Error(
        node, absl::StrCat("expected a list, each ", ExpectedOf(field), ", got ", KindOf(node)));
  }
  message->GetReflection()->ClearField(message, &field);
  AllErrors errors;
  int index = 0;
  for (const YAML::Node& element : node) {
    const Spot at{spot.source, absl::StrCat(spot.key, "[", index++, "]")};
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      errors.Add(
          element.IsMap()
              ? MergeYaml(element, spot.source, at.key,
                          message->GetReflection()->AddMessage(message, &field), nullptr)
              : at.Error(element, absl::StrCat("expected a section, got ", KindOf(element))));
    } else {
      errors.Add(MergeScalar(element, at, field, message));
    }
  }
  return errors.status();
}

absl::Status MergeField(const YAML::Node& node, const Spot& spot, const FieldDescriptor& field,
                        pb::Message* message, Provenance* provenance) {
  if (IsSection(field)) {
    if (node.IsNull()) return absl::OkStatus();  // "model:" whose keys are all commented out.
    if (!node.IsMap())
      return spot.Error(node, absl::StrCat("expected a section, got ", KindOf(node)));
    return MergeYaml(node, spot.source, spot.key,
                     message->GetReflection()->MutableMessage(message, &field), provenance);
  }
  OXBOW_RETURN_IF_ERROR(field.is_repeated() ? MergeList(node, spot, field, message)
                                            : MergeScalar(node, spot, field, message));
  if (provenance != nullptr) (*provenance)[spot.key] = spot.source.Place(node);
  return absl::OkStatus();
}

// A key with its value. `section`: the place of the map. `seen`: its keys so far.
absl::Status MergePair(const YAML::Node& key, const YAML::Node& value, const Spot& section,
                       std::set<std::string>& seen, pb::Message* message, Provenance* provenance) {
  if (!key.IsScalar()) return section.Error(key, "keys must be plain names");
  const pb::Descriptor& type = *message->GetDescriptor();
  const std::string name = key.Scalar();
  const Spot spot{section.source, Join(section.key, name)};
  const FieldDescriptor* field = type.FindFieldByName(name);
  if (field == nullptr) return OtherKey(name, key, value, spot, type);
  if (!seen.insert(name).second) return spot.Error(key, "the key is given twice; keep one");
  // A missing value has no place of its own, so errors name the place of its key.
  if (value.IsNull() && !IsSection(*field)) {
    return spot.Error(
        key, absl::StrCat("expected ", field->is_repeated() ? "a list" : ExpectedOf(*field),
                          ", got nothing"));
  }
  return MergeField(value, spot, *field, message, provenance);
}

// Whether the elements of a list have names, so that a dotted key may go on into one of them.
bool IsNamedList(const FieldDescriptor& field) {
  if (!field.is_repeated() || field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) return false;
  const FieldDescriptor* const name = field.message_type()->FindFieldByName("name");
  return name != nullptr && name->cpp_type() == FieldDescriptor::CPPTYPE_STRING;
}

absl::StatusOr<pb::Message*> ElementNamed(const std::string& name, const Spot& spot,
                                          const FieldDescriptor& list, pb::Message* message) {
  const pb::Reflection& reflection = *message->GetReflection();
  const FieldDescriptor* const key = list.message_type()->FindFieldByName("name");
  std::vector<std::string> known;
  for (int i = 0; i < reflection.FieldSize(*message, &list); ++i) {
    pb::Message* const element = reflection.MutableRepeatedMessage(message, &list, i);
    known.push_back(element->GetReflection()->GetString(*element, key));
    if (known.back() == name) return element;
  }
  return spot.Error({}, absl::StrCat("has no entry named `", name, "`; it has ",
                                     known.empty() ? "none" : absl::StrJoin(known, ", ")));
}

// Where the documents of a text begin.
struct DocumentStarts final : YAML::EventHandler {
  std::vector<YAML::Mark> marks;
  void OnDocumentStart(const YAML::Mark& mark) override { marks.push_back(mark); }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}
};

}  // namespace

std::string YamlSource::Place(const YAML::Node& node) const {
  // yaml-cpp counts lines from 0; a null node has no mark.
  return has_lines && !node.Mark().is_null() ? absl::StrCat(name, ":", node.Mark().line + 1) : name;
}

absl::StatusOr<YAML::Node> ParseYaml(const std::string& text, const YamlSource& source) {
  try {
    YAML::Node root = YAML::Load(text);
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    DocumentStarts starts;
    // At most two: on some malformed text yaml-cpp begins a document again and again.
    if (!parser.HandleNextDocument(starts) || !parser.HandleNextDocument(starts)) return root;
    const YAML::Mark& first = starts.marks.front();
    const YAML::Mark& last = starts.marks.back();
    if (last.pos == first.pos) throw YAML::ParserException(first, "no key or value can begin so");
    return absl::InvalidArgumentError(
        absl::StrCat(source.name, source.has_lines ? absl::StrCat(":", last.line + 1) : "",
                     ": a second document (---) would be ignored; keep one"));
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(
        source.has_lines ? absl::StrCat(source.name, ":", error.mark.line + 1, ":",
                                        error.mark.column + 1, ": not valid YAML: ", error.msg)
                         : absl::StrCat(source.name, ": not valid YAML: ", error.msg));
  }
}

absl::Status MergeYaml(const YAML::Node& node, const YamlSource& source, const std::string& prefix,
                       pb::Message* message, Provenance* provenance) {
  OXBOW_CHECK(node.IsMap()) << "MergeYaml needs a map at " << prefix;
  AllErrors errors;
  std::set<std::string> seen;
  for (const auto& pair : node) {
    errors.Add(MergePair(pair.first, pair.second, {source, prefix}, seen, message, provenance));
  }
  return errors.status();
}

absl::Status SetByText(const std::string& dotted_key, const std::string& text,
                       const YamlSource& source, pb::Message* message, Provenance* provenance) {
  const std::vector<std::string> names = absl::StrSplit(dotted_key, '.');
  std::string key;
  const FieldDescriptor* field = nullptr;
  for (size_t i = 0; i < names.size(); ++i) {
    key = Join(key, names[i]);
    const Spot spot{source, key};
    field = message->GetDescriptor()->FindFieldByName(names[i]);
    if (field == nullptr) {
      return OtherKey(names[i], {}, YAML::Node(text), spot, *message->GetDescriptor());
    }
    if (i + 1 == names.size()) break;
    if (IsNamedList(*field)) {
      OXBOW_ASSIGN_OR_RETURN(pb::Message* const element,
                             ElementNamed(names[i + 1], spot, *field, message));
      const std::string rest =
          dotted_key.substr(std::min(dotted_key.size(), Join(key, names[i + 1]).size() + 1));
      if (rest.empty()) return spot.Error({}, "is a list; set a key of one of its entries");
      OXBOW_RETURN_IF_ERROR(SetByText(rest, text, source, element, nullptr));
      if (provenance != nullptr) (*provenance)[key] = source.name;
      return absl::OkStatus();
    }
    if (!IsSection(*field)) {
      return spot.Error(
          {}, absl::StrCat("has no parts; it is ",
                           field->is_repeated() ? "a list, set it whole" : ExpectedOf(*field)));
    }
    message = message->GetReflection()->MutableMessage(message, field);
  }
  YAML::Node node(text);
  if (field->is_repeated() || field->cpp_type() != FieldDescriptor::CPPTYPE_STRING) {
    OXBOW_ASSIGN_OR_RETURN(node, ParseYaml(text, source));
  }
  return MergeField(node, Spot{source, key}, *field, message, provenance);
}

bool IsSection(const FieldDescriptor& field) {
  return !field.is_repeated() && field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
}

std::vector<std::string> KeysOf(const pb::Descriptor& type) {
  std::vector<std::string> keys;
  for (int i = 0; i < type.field_count(); ++i) keys.push_back(type.field(i)->name());
  return keys;
}

bool TakesAuto(const FieldDescriptor& field) {
  return field.full_name() == "oxbow.v1.LearnerConfig.ranks" ||
         field.full_name() == "oxbow.v1.ServiceConfig.rollout_workers";
}

std::string ExpectedOf(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      return "text";
    case FieldDescriptor::CPPTYPE_BOOL:
      return "true or false";
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return "a number";
    case FieldDescriptor::CPPTYPE_UINT32:
      return TakesAuto(field)
                 ? "a whole number from 0 on, or auto"
                 : absl::StrCat("a whole number from 0 to ", std::numeric_limits<uint32_t>::max());
    case FieldDescriptor::CPPTYPE_UINT64:
      return "a whole number from 0 to 2^64 - 1";
    case FieldDescriptor::CPPTYPE_ENUM:
      return absl::StrCat("one of ", absl::StrJoin(EnumChoices(*field.enum_type()), ", "));
    default:
      return "a section";
  }
}

std::string EnumText(const pb::EnumValueDescriptor& value) {
  // The zero value is PREFIX_UNSPECIFIED in every enum of config.proto.
  const std::string& zero = value.type()->FindValueByNumber(0)->name();
  const size_t prefix = zero.size() - std::string("UNSPECIFIED").size();
  return absl::AsciiStrToLower(value.name().substr(prefix));
}

std::vector<std::string> EnumChoices(const pb::EnumDescriptor& type) {
  std::vector<std::string> choices;
  for (int i = 0; i < type.value_count(); ++i) {
    if (type.value(i)->number() != 0) choices.push_back(EnumText(*type.value(i)));
  }
  return choices;
}

std::vector<std::string> LeafKeys(const pb::Descriptor& type) {
  std::vector<std::string> keys;
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (!IsSection(field)) {
      keys.push_back(field.name());
      continue;
    }
    for (const std::string& key : LeafKeys(*field.message_type())) {
      keys.push_back(absl::StrCat(field.name(), ".", key));
    }
  }
  return keys;
}

FieldValue ValueAt(const pb::Message& message, const FieldDescriptor& field, int index) {
  const pb::Reflection& r = *message.GetReflection();
  const bool list = field.is_repeated();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return list ? r.GetRepeatedBool(message, &field, index) : r.GetBool(message, &field);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return list ? r.GetRepeatedDouble(message, &field, index) : r.GetDouble(message, &field);
    case FieldDescriptor::CPPTYPE_UINT32:
      return uint64_t{list ? r.GetRepeatedUInt32(message, &field, index)
                           : r.GetUInt32(message, &field)};
    case FieldDescriptor::CPPTYPE_UINT64:
      return uint64_t{list ? r.GetRepeatedUInt64(message, &field, index)
                           : r.GetUInt64(message, &field)};
    case FieldDescriptor::CPPTYPE_STRING:
      return list ? r.GetRepeatedString(message, &field, index) : r.GetString(message, &field);
    case FieldDescriptor::CPPTYPE_ENUM:
      return list ? r.GetRepeatedEnum(message, &field, index) : r.GetEnum(message, &field);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return list ? &r.GetRepeatedMessage(message, &field, index) : &r.GetMessage(message, &field);
    default:
      OXBOW_CHECK(false) << "a config has no field of this type: " << field.full_name();
  }
}

}  // namespace oxbow::config
