// SPDX-License-Identifier: Apache-2.0
#include "services/reward/compute_calls.h"

#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "base/clock.h"
#include "base/log.h"

namespace oxbow::reward {

HttpReply ComputeCalls::Compute(Scorer& scorer, const std::string& body) {
  const std::string& name = scorer.facts().name;
  const absl::Duration start = Clock::Steady().Now();
  absl::StatusOr<ComputeRequest> request = ReadComputeRequest(body, items_max_);
  HttpReply reply;
  if (request.ok()) {
    metrics_.BatchArrived(request->items.size());
    const ScorerQueue::Results scores =
        Scored(scorer, std::make_shared<const ComputeRequest>(*std::move(request)));
    for (const absl::StatusOr<Score>& score : scores) {
      score.ok() ? metrics_.ItemScored(name, *score) : metrics_.ItemRefused(name, score.status());
    }
    reply = ReplyOf(scores);
  } else {
    reply = ReplyOf(request.status());
  }
  metrics_.CallEnded(Clock::Steady().Now() - start, reply.code == 200);
  if (reply.code != 200) {
    OXBOW_LOG(Warning) << "HTTP request without scores" << Field("reward", name)
                       << Field("code", reply.code) << Field("answer", reply.body.substr(0, 300));
  }
  return reply;
}

ScorerQueue::Results ComputeCalls::Scored(Scorer& scorer,
                                          std::shared_ptr<const ComputeRequest> request) {
  std::vector<Item> items;
  const uint64_t group = service_.NextGroup();
  for (const ComputeRequest::One& one : request->items) {
    items.push_back({.prompt = one.prompt,
                     .metadata_json = one.metadata_json,
                     .frames = one.frames,
                     .group = group});
  }
  const size_t count = items.size();
  ScorerQueue::Results results;
  absl::Notification done;
  const absl::Status pushed =
      service_.QueueOf(scorer).Push({.items = std::move(items),
                                     .memory = std::move(request),
                                     .gone = stopping_,
                                     .done = [&](ScorerQueue::Results scored) {
                                       results = std::move(scored);
                                       done.Notify();
                                     }});
  if (!pushed.ok()) return ScorerQueue::Results(count, pushed);
  done.WaitForNotification();
  return results;
}

void ComputeCalls::Stop(const ScorerPanel& panel) {
  *stopping_ = true;
  for (const auto& scorer : panel.scorers()) service_.QueueOf(*scorer).DropGone();
}

}  // namespace oxbow::reward
