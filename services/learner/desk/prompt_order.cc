#include "services/learner/desk/prompt_order.h"

#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "base/file.h"
#include "base/philox.h"
#include "base/status_macros.h"
#include "rpc/convert.h"

namespace oxbow::learner {
namespace {

constexpr uint32_t kExtra = 1;  // StreamKey::sample of extra prompts; passes have 0.

}  // namespace

PromptOrder::PromptOrder(std::vector<v1::Prompt> prompts, uint64_t seed, PromptPosition position)
    : prompts_(std::move(prompts)), seed_(seed), position_(position) {
  OXBOW_CHECK(!prompts_.empty()) << "prompts to order";
  OXBOW_CHECK(position_.taken <= prompts_.size()) << "position " << position_.taken;
  Shuffle();
}

// Fisher-Yates.
std::vector<uint32_t> PromptOrder::Permutation(const StreamKey& key) const {
  std::vector<uint32_t> order(prompts_.size());
  std::iota(order.begin(), order.end(), 0u);
  RandomStream stream(key);
  for (size_t left = order.size(); left > 1; --left) {
    std::swap(order[left - 1], order[stream.NextBelow(left)]);
  }
  return order;
}

void PromptOrder::Shuffle() {
  order_ = Permutation({.seed = seed_, .group = position_.pass, .step = kPromptOrder});
}

std::vector<v1::Prompt> PromptOrder::TakeExtra(LearnerStep step, size_t count,
                                               std::set<uint64_t>& taken_ids) const {
  std::vector<v1::Prompt> extra;
  const std::vector<uint32_t> order =
      Permutation({.seed = seed_, .group = step.value, .sample = kExtra, .step = kPromptOrder});
  for (size_t i = 0; i < order.size() && extra.size() < count; ++i) {
    const v1::Prompt& prompt = prompts_[order[i]];
    if (taken_ids.insert(prompt.id()).second) extra.push_back(prompt);
  }
  return extra;
}

v1::Prompt PromptOrder::TakeNext(std::set<uint64_t>& taken_ids) {
  for (size_t looked_at = 0; looked_at <= 2 * prompts_.size(); ++looked_at) {
    if (position_.taken == prompts_.size()) {
      position_ = {.pass = position_.pass + 1, .taken = 0};
      Shuffle();
    }
    const v1::Prompt& prompt = prompts_[order_[position_.taken++]];
    if (taken_ids.insert(prompt.id()).second) return prompt;
  }
  OXBOW_CHECK(false) << "every prompt is taken: " << taken_ids.size();
  return {};
}

namespace {

absl::StatusOr<v1::Prompt> PromptFromJson(const std::string& line) {
  nlohmann::json object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return absl::InvalidArgumentError("not a JSON object");
  const auto text = object.find("prompt");
  if (text == object.end() || !text->is_string()) {
    return absl::InvalidArgumentError("no text under \"prompt\"");
  }
  const std::string prompt = text->get<std::string>();
  object.erase(text);
  return rpc::MakePrompt(prompt, object.empty() ? "" : object.dump());
}

}  // namespace

absl::StatusOr<std::vector<v1::Prompt>> ReadPrompts(const std::filesystem::path& path) {
  OXBOW_ASSIGN_OR_RETURN(const std::string content, ReadFile(path));
  const bool json = path.extension() == ".jsonl";
  std::vector<v1::Prompt> prompts;
  std::set<uint64_t> seen;
  int number = 0;
  for (const auto& piece : absl::StrSplit(content, '\n')) {
    ++number;
    std::string line(piece.data(), piece.size());
    absl::StripAsciiWhitespace(&line);
    if (line.empty()) continue;
    absl::StatusOr<v1::Prompt> prompt = json ? PromptFromJson(line) : rpc::MakePrompt(line, "");
    if (!prompt.ok()) {
      return Annotate(prompt.status(), absl::StrCat(path.string(), ":", number));
    }
    if (seen.insert(prompt->id()).second) prompts.push_back(*std::move(prompt));
  }
  if (prompts.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path.string(), ": holds no prompt"));
  }
  return prompts;
}

}  // namespace oxbow::learner
