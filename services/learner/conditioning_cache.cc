#include "services/learner/conditioning_cache.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "rpc/convert_torch.h"

namespace oxbow::learner {
namespace {

constexpr size_t kBatch = 64;  // Prompts that are asked for at a time.

std::vector<std::string> TextsOf(const std::vector<v1::Prompt>& prompts) {
  std::vector<std::string> texts;
  for (const v1::Prompt& prompt : prompts) texts.push_back(prompt.text());
  return texts;
}

}  // namespace

ConditioningCache::ConditioningCache(std::unique_ptr<io::EncodedPrompts> prompts,
                                     uint64_t bytes_max)
    : prompts_(std::move(prompts)), bytes_max_(bytes_max) {}

absl::Status ConditioningCache::Warm(const std::vector<v1::Prompt>& prompts, double from) {
  if (!prompts_->stored()) return WarmMemory(prompts);
  return prompts_
      ->Prepare(
          TextsOf(prompts),
          [&](const io::EncodedPrompts::Progress& progress) {
            const bool ends = progress.done == 0 || progress.done == progress.total;
            if (progress.total == 0 || !ends) return;
            OXBOW_LOG(Info) << "encoding prompts" << Field("done", progress.done)
                            << Field("total", progress.total)
                            << Field("directory", prompts_->directory().string());
          },
          from)
      .status();
}

absl::Status ConditioningCache::WarmMemory(const std::vector<v1::Prompt>& prompts) {
  std::vector<v1::Prompt> missing;
  for (const v1::Prompt& prompt : prompts) {
    if (held_.count(prompt.id()) == 0) missing.push_back(prompt);
  }
  for (size_t begin = 0; begin < missing.size() && all_fit_; begin += kBatch) {
    const size_t end = std::min(missing.size(), begin + kBatch);
    const std::vector<v1::Prompt> some(missing.begin() + static_cast<ptrdiff_t>(begin),
                                       missing.begin() + static_cast<ptrdiff_t>(end));
    OXBOW_ASSIGN_OR_RETURN(const model::Conditioning rows, prompts_->Get(TextsOf(some)));
    for (size_t i = 0; i < some.size(); ++i) {
      const auto row = static_cast<int64_t>(i);
      Keep(some[i].id(), {.tokens = rows.tokens.slice(0, row, row + 1).contiguous(),
                          .pooled = rows.pooled.slice(0, row, row + 1).contiguous()});
    }
    // The next batch will take what this one took.
    all_fit_ =
        end == missing.size() || bytes_ / held_.size() * (held_.size() + kBatch) <= bytes_max_;
  }
  return absl::OkStatus();
}

void ConditioningCache::ReleaseEncoders() {
  if (prompts_->stored() || all_fit_) prompts_->Release();
}

absl::StatusOr<const ConditioningCache::Entry*> ConditioningCache::Get(const v1::Prompt& prompt) {
  if (const auto found = held_.find(prompt.id()); found != held_.end()) {
    found->second.used = ++uses_;
    return &found->second.entry;
  }
  OXBOW_ASSIGN_OR_RETURN(model::Conditioning row, prompts_->Get({prompt.text()}));
  return &Keep(prompt.id(), std::move(row));
}

const ConditioningCache::Entry& ConditioningCache::Keep(uint64_t id, model::Conditioning row) {
  Held held{.entry = {.tensors = std::move(row)}};
  held.entry.wire = rpc::ToProto(held.entry.tensors);
  held.bytes = 2 * (held.entry.tensors.tokens.nbytes() + held.entry.tensors.pooled.nbytes());
  held.used = ++uses_;
  if (const auto old = held_.find(id); old != held_.end()) {
    bytes_ -= old->second.bytes;
    held_.erase(old);
  }
  MakeRoom(held.bytes);
  bytes_ += held.bytes;
  return held_.emplace(id, std::move(held)).first->second.entry;
}

void ConditioningCache::MakeRoom(uint64_t bytes) {
  while (!held_.empty() && bytes_ + bytes > bytes_max_) {
    const auto oldest = std::min_element(
        held_.begin(), held_.end(),
        [](const auto& a, const auto& b) { return a.second.used < b.second.used; });
    bytes_ -= oldest->second.bytes;
    held_.erase(oldest);
  }
}

}  // namespace oxbow::learner
