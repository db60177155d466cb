// SPDX-License-Identifier: Apache-2.0
#include "cli/model/prompt_warnings.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/model/trained_part.h"
#include "io/clip_tokenizer.h"

namespace oxbow::cli {
namespace {

// CLIP's own has 49408; an embedded model's 514 and one for each word.
constexpr int64_t kWordListMax = 4096;
constexpr size_t kWordsShown = 10;

std::string PathOf(const ModelSource& source) {
  if (source.run.empty()) return source.model;
  const auto config = ConfigOfRun(source.run);
  return config.ok() ? config->model().path() : "";
}

std::string ListOf(const std::set<std::string>& words) {
  const size_t shown = std::min(words.size(), kWordsShown);
  const auto end = std::next(words.begin(), static_cast<std::ptrdiff_t>(shown));
  const size_t more = words.size() - shown;
  return absl::StrCat(absl::StrJoin(words.begin(), end, ", "),
                      more == 0 ? "" : absl::StrCat(" and ", more, " more"));
}

}  // namespace

std::vector<std::string> PromptWarnings(const ModelSource& source,
                                        const std::vector<std::string>& prompts) {
  const std::string path = PathOf(source);
  if (path.empty()) return {};
  const auto tokenizer = io::ClipTokenizer::Load(std::filesystem::path(path) / "tokenizer");
  if (!tokenizer.ok() || tokenizer->size() > kWordListMax) return {};
  std::set<std::string> unknown;
  bool empty = false;
  for (const std::string& prompt : prompts) {
    empty = empty || absl::StripAsciiWhitespace(prompt).empty();
    for (const std::string& word : tokenizer->SplitWords(prompt)) unknown.insert(word);
  }
  std::vector<std::string> warnings;
  if (!unknown.empty()) {
    warnings.push_back(
        absl::StrCat(path, " was not trained on these words, and guesses: ", ListOf(unknown)));
  }
  if (empty) warnings.push_back("a prompt without words asks for nothing in particular");
  return warnings;
}

}  // namespace oxbow::cli
