// SPDX-License-Identifier: Apache-2.0
#include "base/help_page.h"

#include <algorithm>
#include <sstream>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/first_part.h"

namespace oxbow {
namespace {

constexpr size_t kNameColumns = 28;
constexpr size_t kColumns = 100;

// "  name   text", the text from column kNameColumns on, or on a line of its own under a long name.
std::string Entry(const std::string& name, const std::string& text) {
  std::string out = absl::StrCat("  ", name);
  size_t column = out.size();
  if (column + 2 > kNameColumns) {
    absl::StrAppend(&out, text.empty() ? "" : "\n");
    column = 0;
  }
  if (text.empty()) return out + "\n";
  return absl::StrCat(out, std::string(kNameColumns - column, ' '),
                      Wrapped(text, kNameColumns, kColumns), "\n");
}

// CLI11's text about a value, "UINT:INT in [1 - 4096]", as its two parts.
struct ValueType {
  std::string type;   // "UINT"
  std::string check;  // "INT in [1 - 4096]"
};

ValueType TypeOf(const CLI::Option* option) {
  const std::string name = option->get_type_name();
  const size_t colon = name.find(':');
  if (colon == std::string::npos) return {name, ""};
  return {name.substr(0, colon), name.substr(colon + 1)};
}

// "1 to 4096"; "" if the check is nothing to say in words.
std::string Bounds(const std::string& check) {
  if (check == "POSITIVE") return "above 0";
  if (check == "NONNEGATIVE") return "at least 0";
  const size_t open = check.find("in [");
  const size_t dash = check.find(" - ", open);
  if (open == std::string::npos || dash == std::string::npos) return "";
  const std::string low = check.substr(open + 4, dash - open - 4);
  return absl::StrCat(low, " to ", check.substr(dash + 3, check.find(']', dash) - dash - 3));
}

template <typename Options>
std::string NamesOf(const Options& options) {
  return absl::StrJoin(options, ", ", [](std::string* out, const CLI::Option* option) {
    absl::StrAppend(out, option->get_name());
  });
}

// An option with a word and a flag, such as RUN_DIR and --run, is shown twice and needed once.
std::string RequiredText(const CLI::Option* option) {
  if (!option->get_positional() || !option->nonpositional()) return "required";
  return absl::StrCat(option->get_name(true), " or ", option->get_name(), " is required");
}

std::string Heading(const CLI::App* group) {
  const bool required = group->get_require_option_min() > 0;
  if (group->get_require_option_max() != 1) return required ? "At least one of these:" : "Options:";
  return required ? "One of these is required:" : "At most one of these:";
}

}  // namespace

std::string HelpPage::make_positionals(const CLI::App* app) const {
  std::string out = CLI::Formatter::make_positionals(app);
  for (const CLI::App* group : app->get_subcommands([](const CLI::App*) { return true; })) {
    if (!group->get_name().empty()) continue;
    absl::StrAppend(&out, "\n", Heading(group), "\n");
    for (const CLI::Option* option : group->get_options()) {
      if (option == group->get_help_ptr() || !option->nonpositional()) continue;
      absl::StrAppend(&out, make_option(option, false));
    }
  }
  return out;
}

// A nameless group of options is shown above the others.
std::string HelpPage::make_expanded(const CLI::App* sub) const {
  return sub->get_name().empty() ? "" : CLI::Formatter::make_expanded(sub);
}

std::string HelpPage::make_subcommand(const CLI::App* sub) const {
  return Entry(sub->get_display_name(true), sub->get_description());
}

std::string HelpPage::make_option(const CLI::Option* option, bool is_positional) const {
  return Entry(absl::StrCat(make_option_name(option, is_positional),
                            is_positional ? "" : make_option_opts(option)),
               make_option_desc(option));
}

std::string HelpPage::make_option_opts(const CLI::Option* option) const {
  const auto [type, check] = TypeOf(option);
  if (type.empty()) return "";  // A flag.
  std::string value = type == "TEXT" ? type : type == "FLOAT" ? "X" : "N";
  if (absl::StartsWith(check, "{")) value = check;
  const bool many = option->get_expected_max() >= CLI::detail::expected_max_vector_size;
  return absl::StrCat(" ", value, many ? " ..." : "");
}

std::string HelpPage::make_option_desc(const CLI::Option* option) const {
  const std::string text = option->get_description();
  std::vector<std::string> facts;
  const auto add = [&](const char* label, const std::string& fact) {
    if (!fact.empty()) facts.push_back(absl::StrCat(label, fact));
  };
  if (option->get_required()) facts.push_back(RequiredText(option));
  add("", Bounds(TypeOf(option).check));
  const std::string standard = option->get_default_str();
  if (!TypeOf(option).type.empty() && standard != "[]" && !absl::StrContains(text, "default")) {
    add("default ", standard);
  }
  add("or ", option->get_envname());
  add("with ", NamesOf(option->get_needs()));
  add("not with ", NamesOf(option->get_excludes()));
  if (facts.empty()) return text;
  return absl::StrCat(text, text.empty() ? "(" : " (", absl::StrJoin(facts, "; "), ")");
}

}  // namespace oxbow
