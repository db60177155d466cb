// SPDX-License-Identifier: Apache-2.0
// Writes a resolved config in the schema's order, with the shortest numbers that read back to the
// same bits.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/file.h"
#include "config/device_plan.h"
#include "config/run_config.h"
#include "config/yaml_message.h"

namespace oxbow::config {
namespace {

namespace pb = google::protobuf;
using pb::FieldDescriptor;

constexpr size_t kCommentColumn = 44;

std::string YamlDoubleText(double value) {
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof text, value);
  OXBOW_CHECK(error == std::errc()) << "a double needs more than 32 characters";
  return std::string(text, end);
}

bool ReadsAsPlainText(const std::string& text) {
  if (text.empty() || !absl::ascii_isalpha(static_cast<unsigned char>(text[0]))) return false;
  if (!std::all_of(text.begin(), text.end(), [](unsigned char c) {
        return absl::ascii_isalnum(c) || c == '_' || c == '/' || c == '.' || c == '-';
      })) {
    return false;
  }
  for (const char* reserved : {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}) {
    if (absl::AsciiStrToLower(text) == reserved) return false;
  }
  return true;
}

std::string StringText(const std::string& text) {
  if (ReadsAsPlainText(text)) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\x%02x", static_cast<unsigned>(c));
      quoted += escaped;
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string FlowMap(const pb::Message& message);

std::string YamlValueText(const FieldValue& value, bool takes_auto) {
  if (const bool* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const double* number = std::get_if<double>(&value)) return YamlDoubleText(*number);
  if (const uint64_t* number = std::get_if<uint64_t>(&value)) {
    return takes_auto && *number == kAuto ? kAutoText : absl::StrCat(*number);
  }
  if (const std::string* text = std::get_if<std::string>(&value)) return StringText(*text);
  if (const auto* choice = std::get_if<const pb::EnumValueDescriptor*>(&value)) {
    return EnumText(**choice);
  }
  return FlowMap(*std::get<const pb::Message*>(value));
}

std::string FlowMap(const pb::Message& message) {
  std::vector<std::string> pairs;
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    // Keys of an element have no other default than empty.
    if (!field.is_repeated() && !message.GetReflection()->HasField(message, &field)) continue;
    pairs.push_back(absl::StrCat(field.name(), ": ", FieldText(message, field)));
  }
  return absl::StrCat("{", absl::StrJoin(pairs, ", "), "}");
}

// `all`: write values that are defaults, too.
void AppendYamlSection(const pb::Message& message, const Provenance& provenance,
                       const std::string& prefix, const std::string& indent, bool all,
                       std::string* out) {
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    const std::string key = absl::StrCat(prefix, field.name());
    if (!field.is_repeated() && field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      std::string section;
      AppendYamlSection(message.GetReflection()->GetMessage(message, &field), provenance,
                        absl::StrCat(key, "."), absl::StrCat(indent, "  "), all, &section);
      if (!section.empty()) absl::StrAppend(out, indent, field.name(), ":\n", section);
      continue;
    }
    std::string line = absl::StrCat(indent, field.name(), ": ", FieldText(message, field));
    const auto source = provenance.find(key);
    const bool chosen = source != provenance.end() && source->second != kDefaultSource;
    if (!chosen && !all) continue;
    if (source != provenance.end()) {
      line.resize(std::max(line.size() + 2, kCommentColumn), ' ');
      absl::StrAppend(&line, "# ", source->second);
    }
    absl::StrAppend(out, line, "\n");
  }
}

}  // namespace

std::string FieldText(const pb::Message& message, const FieldDescriptor& field) {
  if (!field.is_repeated()) return YamlValueText(ValueAt(message, field), TakesAuto(field));
  std::vector<std::string> elements;
  for (int i = 0; i < message.GetReflection()->FieldSize(message, &field); ++i) {
    elements.push_back(YamlValueText(ValueAt(message, field, i), TakesAuto(field)));
  }
  return absl::StrCat("[", absl::StrJoin(elements, ", "), "]");
}

std::string ResolvedYaml(const ResolvedConfig& resolved) {
  std::string out;
  AppendYamlSection(resolved.config, resolved.provenance, "", "", /*all=*/true, &out);
  return out;
}

std::string ChosenYaml(const ResolvedConfig& resolved) {
  std::string out;
  AppendYamlSection(resolved.config, resolved.provenance, "", "", /*all=*/false, &out);
  return out;
}

Provenance SourcesIn(const std::string& resolved_yaml) {
  Provenance sources;
  std::vector<std::string> open;  // The sections around a line.
  for (const absl::string_view line : absl::StrSplit(resolved_yaml, '\n')) {
    const size_t begin = line.find_first_not_of(' ');
    const size_t colon = line.find(':');
    if (begin == line.npos || colon == line.npos || line[begin] == '#') continue;
    open.resize(std::min(open.size(), begin / 2));
    open.emplace_back(line.substr(begin, colon - begin));
    const size_t source = line.rfind("  # ");
    if (source != line.npos && source > colon) {
      sources[absl::StrJoin(open, ".")] = std::string(line.substr(source + 4));
    }
  }
  return sources;
}

absl::Status WriteResolved(const ResolvedConfig& resolved, const std::filesystem::path& path) {
  return WriteFileAtomically(path, absl::StrCat("# Every setting of this run and where it came "
                                                "from. Read by the services and by --resume.\n",
                                                ResolvedYaml(resolved)));
}

}  // namespace oxbow::config
