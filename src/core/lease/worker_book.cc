// SPDX-License-Identifier: Apache-2.0
#include "core/lease/worker_book.h"

#include <algorithm>

namespace oxbow::lease {

void WorkerBook::Leave(const std::string& worker) {
  const auto found = records_.find(worker);
  if (found == records_.end()) return;
  found->second.live = found->second.asks = found->second.proven = false;
  if (found->second.failures == 0) records_.erase(found);
}

void WorkerBook::Asks(const std::string& worker, bool asks) {
  const auto found = records_.find(worker);
  if (found != records_.end()) found->second.asks = asks;
}

void WorkerBook::Succeeded(const std::string& worker) {
  const auto found = records_.find(worker);
  if (found == records_.end()) return;
  Record& record = found->second;
  record = {.live = record.live, .asks = record.asks, .proven = true};
  if (!record.live) records_.erase(found);
}

bool WorkerBook::Failed(const std::string& worker, const std::string& reason, Blame blame) {
  if (blame == Blame::kNobody) return false;
  Record& record = records_[worker];
  record.reason = reason;
  record.failed = clock_.Now();
  record.elsewhere = blame == Blame::kElsewhere;
  if (record.elsewhere) {
    record.rests_until = std::max(record.rests_until, record.failed + rule_.rest_elsewhere);
    return false;
  }
  if (++record.failures < rule_.failures_max) return false;
  const uint32_t doublings = std::min(record.failures - rule_.failures_max, 30u);
  const absl::Duration rest =
      std::min(rule_.rest_first * (int64_t{1} << doublings), rule_.rest_max);
  record.rests_until = record.failed + rest;
  return true;
}

bool WorkerBook::Admits(const std::string& worker, uint64_t running) const {
  const Record* const record = Find(worker);
  if (record == nullptr) return true;
  if (Rests(*record)) return false;
  return running == 0 || (!Bad(*record) && !record->elsewhere);
}

bool WorkerBook::Bad(const std::string& worker) const {
  const Record* const record = Find(worker);
  return record != nullptr && Bad(*record);
}

bool WorkerBook::Vouches(const std::string& worker) const {
  const Record* const record = Find(worker);
  return record != nullptr && Vouches(*record);
}

uint64_t WorkerBook::vouching() const {
  return static_cast<uint64_t>(
      std::ranges::count_if(records_, [this](const auto& item) { return Vouches(item.second); }));
}

uint64_t WorkerBook::bad() const {
  return static_cast<uint64_t>(std::ranges::count_if(
      records_, [this](const auto& item) { return item.second.live && Bad(item.second); }));
}

bool WorkerBook::AnotherMayTake(const std::vector<std::string>& failed,
                                const absl::flat_hash_map<std::string, uint64_t>& holds) const {
  return std::ranges::any_of(records_, [&](const auto& item) {
    const auto& [worker, record] = item;
    return record.live && !Rests(record) && (record.asks || holds.contains(worker)) &&
           std::ranges::find(failed, worker) == failed.end();
  });
}

void WorkerBook::Look() {
  std::erase_if(records_, [this](const auto& item) {
    return !item.second.live && clock_.Now() - item.second.failed > rule_.remembered;
  });
  const auto live = static_cast<uint64_t>(
      std::ranges::count_if(records_, [](const auto& item) { return item.second.live; }));
  if (live == 0 || bad() < live) {
    all_bad_since_.reset();
  } else if (!all_bad_since_.has_value()) {
    all_bad_since_ = clock_.Now();
  }
}

std::string WorkerBook::last_bad() const {
  const Record* last = nullptr;
  std::string name;
  for (const auto& [worker, record] : records_) {
    if (!record.live || !Bad(record) || (last != nullptr && record.failed < last->failed)) continue;
    last = &record;
    name = worker;
  }
  return name;
}

const WorkerBook::Record* WorkerBook::Find(const std::string& worker) const {
  const auto found = records_.find(worker);
  return found == records_.end() ? nullptr : &found->second;
}

}  // namespace oxbow::lease
