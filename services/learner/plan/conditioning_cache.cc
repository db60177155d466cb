// SPDX-License-Identifier: Apache-2.0
#include "services/learner/plan/conditioning_cache.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "base/log.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "rpc/convert_torch.h"

namespace oxbow::learner {
namespace {

constexpr size_t kBatch = 64;  // Prompts that are asked for at a time.
constexpr absl::Duration kShowEvery = absl::Seconds(30);

// Logs the begin, the end, and now and then what is between.
class EncodingLog {
 public:
  EncodingLog(const Clock& clock, std::string where) : clock_(clock), where_(std::move(where)) {}

  void Show(size_t done, size_t total) {
    if (total == 0) return;
    const absl::Duration now = clock_.Now();
    if (done == 0) started_ = now;
    if (done > 0 && done < total && now - shown_ < kShowEvery) return;
    shown_ = now;
    const double left = done == 0
                            ? 0
                            : absl::ToDoubleSeconds(now - started_) / static_cast<double>(done) *
                                  static_cast<double>(total - done);
    OXBOW_LOG(Info) << "encoding prompts" << Field("done", done) << Field("total", total)
                    << Field("seconds_left", static_cast<int64_t>(left)) << Field("into", where_);
  }

 private:
  const Clock& clock_;
  const std::string where_;
  absl::Duration started_;
  absl::Duration shown_;
};

std::vector<std::string> TextsOf(const std::vector<v1::Prompt>& prompts) {
  std::vector<std::string> texts;
  for (const v1::Prompt& prompt : prompts) texts.push_back(prompt.text());
  return texts;
}

}  // namespace

ConditioningCache::ConditioningCache(std::unique_ptr<io::EncodedPrompts> prompts,
                                     uint64_t bytes_max, const Clock& clock)
    : prompts_(std::move(prompts)), bytes_max_(bytes_max), clock_(clock) {}

absl::Status ConditioningCache::Warm(const std::vector<v1::Prompt>& prompts, double from) {
  return prompts_->stored() ? WarmDisk(TextsOf(prompts), from) : WarmMemory(prompts);
}

absl::Status ConditioningCache::WarmFirst(const std::vector<v1::Prompt>& prompts, size_t now) {
  if (!prompts_->stored()) return WarmMemory(prompts);
  OXBOW_ASSIGN_OR_RETURN(std::vector<std::string> missing, prompts_->Missing(TextsOf(prompts)));
  const auto first = missing.begin() + static_cast<ptrdiff_t>(std::min(now, missing.size()));
  left_.assign(first, missing.end());
  missing.erase(first, missing.end());
  OXBOW_RETURN_IF_ERROR(WarmDisk(missing, /*from=*/0));
  if (!left_.empty()) {
    OXBOW_LOG(Info) << "encoding the other prompts beside the training"
                    << Field("left", left_.size());
  }
  return absl::OkStatus();
}

absl::Status ConditioningCache::Ahead(size_t count, const std::function<bool()>& ended) {
  // One at a time: on a CPU it may take seconds, and a run that drains waits for it.
  for (; count > 0 && !left_.empty() && !ended(); --count) {
    OXBOW_RETURN_IF_ERROR(prompts_->Prepare({left_.front()}, [](const auto&) {}).status());
    left_.erase(left_.begin());
    if (!left_.empty()) continue;
    OXBOW_LOG(Info) << "all prompts are encoded" << Field("into", prompts_->directory().string());
    prompts_->Release();
  }
  return absl::OkStatus();
}

absl::Status ConditioningCache::WarmDisk(const std::vector<std::string>& texts, double from) {
  EncodingLog log(clock_, prompts_->directory().string());
  return prompts_
      ->Prepare(
          texts,
          [&](const io::EncodedPrompts::Progress& progress) {
            log.Show(progress.done, progress.total);
          },
          from)
      .status();
}

absl::Status ConditioningCache::WarmMemory(const std::vector<v1::Prompt>& prompts) {
  std::vector<v1::Prompt> missing;
  std::set<uint64_t> seen;  // Evaluation may use training's prompts.
  for (const v1::Prompt& prompt : prompts) {
    if (held_.count(prompt.id()) == 0 && seen.insert(prompt.id()).second) {
      missing.push_back(prompt);
    }
  }
  EncodingLog log(clock_, "memory");
  log.Show(0, missing.size());
  for (size_t begin = 0; begin < missing.size() && all_fit_; begin += kBatch) {
    const size_t end = std::min(missing.size(), begin + kBatch);
    const std::vector<v1::Prompt> some(missing.begin() + static_cast<ptrdiff_t>(begin),
                                       missing.begin() + static_cast<ptrdiff_t>(end));
    OXBOW_ASSIGN_OR_RETURN(const model::Conditioning rows, prompts_->Get(TextsOf(some)));
    for (size_t i = 0; i < some.size(); ++i) {
      const at::Tensor row = at::full({1}, static_cast<int64_t>(i), at::kLong);
      Keep(some[i].id(), model::SelectRows(rows, row));
    }
    log.Show(end, missing.size());
    // The next batch will take what this one took.
    all_fit_ =
        end == missing.size() || bytes_ / held_.size() * (held_.size() + kBatch) <= bytes_max_;
  }
  return absl::OkStatus();
}

void ConditioningCache::ReleaseEncoders() {
  if (prompts_->stored() ? left_.empty() : all_fit_) prompts_->Release();
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
  auto bytes =
      std::make_shared<const std::string>(rpc::ToProto(held.entry.tensors).SerializeAsString());
  held.bytes = model::BytesOf(held.entry.tensors) + bytes->size();
  held.entry.sent.sha256 = Sha256(*bytes);
  held.entry.sent.bytes = sent_.Put(held.entry.sent.sha256, std::move(bytes));
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
