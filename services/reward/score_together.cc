// SPDX-License-Identifier: Apache-2.0
// The first try at the scores of several groups. It takes good scores alone: whatever else comes of
// it, a group is asked for by itself as if there had been none.
#include <algorithm>
#include <atomic>
#include <iterator>
#include <thread>
#include <utility>

#include "absl/algorithm/container.h"
#include "base/check.h"
#include "base/trace.h"
#include "rpc/status.h"
#include "rpc/trace.h"
#include "services/reward/reward_client_impl.h"
#include "services/reward/score_messages.h"
#include "services/reward/score_plan.h"
#include "services/reward/score_writer.h"

namespace oxbow::reward {
namespace {

uint64_t BytesOf(const ScoreCall& call) {
  uint64_t bytes = 0;
  for (const MediumSize& size : call.media.sizes()) bytes += size.bytes_sent(1);
  return bytes;
}

// Whether a group's batches are whole, and their rewards take what comes as it comes: a scorer
// with batches of its own fills them from calls that arrive side by side.
bool MayShare(const ScoreCall& call, const std::vector<ScoreBatch>& batches,
              const std::map<std::string, RewardFacts>& facts) {
  return absl::c_all_of(batches, [&](const ScoreBatch& batch) {
    return batch.too_large.empty() && batch.images.size() == call.media.size() &&
           absl::c_all_of(batch.rewards, [&](const std::string& reward) {
             const auto known = facts.find(reward);
             return known != facts.end() && known->second.batch_max == 0;
           });
  });
}

// Whether every image has a score of each of these rewards.
bool AllScored(ScoreCall& call, const std::vector<std::string>& rewards) {
  absl::MutexLock lock(&call.mutex);
  return absl::c_all_of(call.outcomes, [&](const Outcomes& outcomes) {
    return absl::c_all_of(rewards, [&](const auto& reward) { return outcomes.contains(reward); });
  });
}

// One trace for each request, in their order; none unless every group has one.
void AddTraces(const std::vector<GroupPart>& parts, grpc::ClientContext& context) {
  if (!absl::c_all_of(parts, [](const auto& part) { return part.call->trace.has_value(); })) return;
  for (const GroupPart& part : parts) {
    context.AddMetadata(rpc::kTraceparent, Traceparent(*part.call->trace));
  }
}

// Requests whose items are numbered through, all of them before any answer is read.
void WriteAll(const std::vector<GroupPart>& parts, size_t batch_max,
              grpc::ClientReaderWriter<v1::ScoreRequest, v1::ScoreResponse>& stream) {
  bool open = true;
  for (size_t i = 0; i < parts.size() && open; ++i) {
    WriteBatch(*parts[i].call, *parts[i].batch, batch_max,
               [&](const v1::ScoreRequest& request, bool last) {
                 grpc::WriteOptions options;
                 const bool ends = last && i + 1 == parts.size();
                 ends ? options.set_last_message() : options.set_buffer_hint();
                 open = stream.Write(request, options);
                 return open;
               });
  }
}

// Keeps the scores of a response, and nothing else that it says.
void Keep(const v1::ScoreResponse& response, const std::vector<GroupPart>& parts,
          const std::string& endpoint) {
  for (const GroupPart& part : parts) {
    ScoreCall& call = *part.call;
    if (response.item() < call.first_item) continue;
    const uint64_t image = response.item() - call.first_item;
    if (image >= call.media.size()) continue;
    auto outcomes = OutcomesOf(response, part.batch->rewards, endpoint);
    absl::MutexLock lock(&call.mutex);
    for (auto& [reward, outcome] : outcomes) {
      if (outcome.ok()) call.outcomes[image].try_emplace(reward, std::move(outcome));
    }
    return;
  }
}

}  // namespace

std::vector<std::string> RewardClient::Impl::TrainedOf(
    const std::vector<std::string>& rewards) const {
  std::vector<std::string> trained;
  absl::c_copy_if(rewards, std::back_inserter(trained),
                  [&](const std::string& reward) { return !IsObserved(reward); });
  return trained;
}

// Asks no server that might not answer: a breaker's trial is for a call that notes its outcome.
RewardClient::Impl::Shared RewardClient::Impl::ShareCall(const std::vector<GroupPart>& parts) {
  const std::vector<std::string>& rewards = parts.front().batch->rewards;
  std::optional<size_t> server;
  size_t batch_max = 1;
  {
    absl::MutexLock lock(&mutex);
    server = directory.NextTrusted(rewards);
    if (!server.has_value() || cancelled) return Shared::kNotAsked;
    batch_max = directory.BatchMax(*server);
  }
  const absl::Duration start = options.clock->Now();
  const Cancellable context(*this, std::min(options.timeout, options.shared.longest));
  AddTraces(parts, *context.get());
  context.get()->set_initial_metadata_corked(true);
  const auto stub = lines[*server]->stub();
  const auto stream = stub->Score(context.get());
  WriteAll(parts, batch_max, *stream);
  v1::ScoreResponse response;
  while (stream->Read(&response)) Keep(response, parts, options.endpoints[*server]);
  const absl::Status status = rpc::FromGrpc(stream->Finish());
  lines[*server]->Ended(status);
  if (!status.ok()) return Shared::kDidNotPay;
  // What is observed may fail again and again, and costs the others nothing.
  const std::vector<std::string> trained = TrainedOf(rewards);
  for (const GroupPart& part : parts) {
    if (!AllScored(*part.call, trained)) return Shared::kDidNotPay;
  }
  const absl::Duration quick = options.shared.quick * static_cast<double>(parts.size());
  return options.clock->Now() - start <= quick ? Shared::kPaid : Shared::kDidNotPay;
}

std::vector<std::optional<std::vector<Scores>>> RewardClient::ScoreTogether(
    const std::vector<Group>& groups) {
  return impl_->ScoreTogether(groups);
}

std::vector<std::optional<std::vector<Scores>>> RewardClient::Impl::ScoreTogether(
    const std::vector<Group>& groups) {
  std::vector<std::optional<std::vector<Scores>>> scores(groups.size());
  std::vector<std::unique_ptr<ScoreCall>> calls;
  std::vector<std::vector<ScoreBatch>> plans;
  std::vector<uint64_t> bytes;
  std::vector<std::vector<GroupPart>> shared;
  {
    absl::MutexLock lock(&mutex);
    if (groups.size() < 2 || cancelled || !rest.Tries()) return scores;
    const auto facts = directory.Facts();
    uint64_t items = 0;
    for (const Group& group : groups) {
      calls.push_back(NewCall(group, {}));
      calls.back()->first_item = std::exchange(items, items + group.media.size());
      plans.push_back(Plan(*calls.back()));
      const bool may = !group.media.empty() && MayShare(*calls.back(), plans.back(), facts);
      bytes.push_back(may ? BytesOf(*calls.back()) : UINT64_MAX);
    }
    // Those that may share have one batch for each lot of rewards; others may have more, or fewer.
    const auto first = absl::c_find_if(bytes, [](uint64_t of) { return of != UINT64_MAX; });
    if (first == bytes.end()) return scores;
    const std::vector<ScoreBatch>& lots = plans[static_cast<size_t>(first - bytes.begin())];
    for (size_t lot = 0; lot < lots.size(); ++lot) {
      const size_t servers = directory.ServersOf(lots[lot].rewards.front()).size();
      for (const std::vector<size_t>& dealt : DealGroups(bytes, servers, options.shared)) {
        shared.emplace_back();
        for (const size_t i : dealt) shared.back().push_back({calls[i].get(), &plans[i][lot]});
      }
    }
  }
  if (shared.empty()) return scores;
  std::atomic<bool> asked = false, paid = true;
  SideBySide(shared.size(), [&](size_t i) {
    const Shared outcome = ShareCall(shared[i]);
    if (outcome != Shared::kNotAsked) asked = true;
    if (outcome == Shared::kDidNotPay) paid = false;
  });
  for (size_t i = 0; i < groups.size(); ++i) scores[i] = ScoresOf(*calls[i]);
  absl::MutexLock lock(&mutex);
  if (asked) paid ? rest.Paid() : rest.DidNotPay();
  return scores;
}

// All images have a reward or none does: one that compares images compares all of them.
std::optional<std::vector<Scores>> RewardClient::Impl::ScoresOf(ScoreCall& call) const {
  std::vector<std::string> complete;
  for (const std::string& reward : options.rewards) {
    if (AllScored(call, {reward})) {
      complete.push_back(reward);
    } else if (!IsObserved(reward)) {
      return std::nullopt;
    }
  }
  absl::MutexLock lock(&call.mutex);
  std::vector<Scores> scores;
  for (const Outcomes& outcomes : call.outcomes) {
    Scores& of_image = scores.emplace_back();
    for (const std::string& reward : complete) of_image[reward] = *outcomes.at(reward);
  }
  return scores;
}

std::vector<absl::StatusOr<Scores>> RewardClient::ScoreRest(const Group& group,
                                                            const std::vector<Scores>& scores,
                                                            const Patience& patience) {
  OXBOW_CHECK(scores.size() == group.media.size()) << scores.size() << " scores";
  std::unique_ptr<ScoreCall> call;
  std::vector<ScoreBatch> batches;
  {
    absl::MutexLock lock(&impl_->mutex);
    if (absl::c_all_of(scores, [&](const Scores& of_image) {
          return of_image.size() == impl_->options.rewards.size();
        })) {
      return {scores.begin(), scores.end()};
    }
    call = impl_->NewCall(group, patience);
    batches = impl_->Plan(*call);
  }
  {
    absl::MutexLock lock(&call->mutex);
    for (size_t i = 0; i < scores.size(); ++i) {
      call->outcomes[i].insert(scores[i].begin(), scores[i].end());
    }
  }
  return impl_->Finish(*call, batches);
}

}  // namespace oxbow::reward
