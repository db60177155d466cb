#include "services/learner/conditioning_cache.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "rpc/convert_torch.h"

namespace oxbow::learner {

ConditioningCache::ConditioningCache(PromptEncoder encoder, size_t batch)
    : encoder_(std::move(encoder)), batch_(batch) {}

absl::Status ConditioningCache::Warm(const std::vector<v1::Prompt>& prompts) {
  std::vector<const v1::Prompt*> missing;
  for (const v1::Prompt& prompt : prompts) {
    if (entries_.count(prompt.id()) == 0) missing.push_back(&prompt);
  }
  for (size_t begin = 0; begin < missing.size(); begin += batch_) {
    const size_t end = std::min(missing.size(), begin + batch_);
    std::vector<std::string> texts;
    for (size_t i = begin; i < end; ++i) texts.push_back(missing[i]->text());
    OXBOW_ASSIGN_OR_RETURN(const model::Conditioning rows, encoder_(texts));
    for (size_t i = begin; i < end; ++i) {
      const int64_t row = static_cast<int64_t>(i - begin);
      Entry entry;
      entry.tensors = {.tokens = rows.tokens.slice(0, row, row + 1).contiguous(),
                       .pooled = rows.pooled.slice(0, row, row + 1).contiguous()};
      entry.wire = rpc::ToProto(entry.tensors);
      entries_.emplace(missing[i]->id(), std::move(entry));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<const ConditioningCache::Entry*> ConditioningCache::Get(const v1::Prompt& prompt) {
  if (entries_.count(prompt.id()) == 0) OXBOW_RETURN_IF_ERROR(Warm({prompt}));
  return &entries_.at(prompt.id());
}

}  // namespace oxbow::learner
