// SPDX-License-Identifier: Apache-2.0
#include "services/rollout/group_delivery.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "io/picture_file.h"
#include "rpc/convert.h"
#include "rpc/convert_torch.h"
#include "run/rewards.h"

namespace oxbow::rollout {
namespace {

const char* NameOf(v1::InsertOutcome outcome) {
  static constexpr const char* kNames[] = {"invalid", "accepted", "duplicate",
                                           "fenced",  "invalid",  "superseded"};
  return v1::InsertOutcome_IsValid(outcome) ? kNames[outcome] : kNames[0];
}

// Only one sample of a group may become a replay entry.
void AddPicture(const std::vector<std::vector<Image8>>& media, v1::Group& group) {
  const v1::Trajectory* const best = rpc::BestFresh(group);
  if (best == nullptr) return;
  for (int i = 0; i < group.trajectories_size(); ++i) {
    if (&group.trajectories(i) != best) continue;
    group.mutable_trajectories(i)->set_picture(io::PreviewOf(media[static_cast<size_t>(i)]));
  }
}

}  // namespace

absl::StatusOr<Unscored> ApplyScores(const v1::RewardConfig& config, bool drops,
                                     const std::vector<absl::StatusOr<reward::Scores>>& scores,
                                     std::vector<rl::Trajectory>& samples) {
  OXBOW_CHECK(scores.size() == samples.size()) << scores.size() << " scores for " << samples.size();
  for (const absl::StatusOr<reward::Scores>& score : scores) {
    if (!score.ok() && !reward::IsUnscorable(score.status())) return score.status();
  }
  Unscored unscored;
  for (size_t i = 0; i < samples.size(); ++i) {
    if (scores[i].ok()) {
      samples[i].rewards = *scores[i];
      samples[i].reward = run::WeightedReward(config, *scores[i]);
      for (const std::string& name : config.observed()) {
        if (!scores[i]->contains(name)) ++unscored.observed[name];
      }
      continue;
    }
    unscored.reason = scores[i].status();
    const bool fails = config.on_failure() == v1::ON_REWARD_FAILURE_FAIL && !drops;
    if (fails && !reward::IsFinal(unscored.reason)) {
      return Annotate(unscored.reason, absl::StrCat("reward of sample ", samples[i].index));
    }
    samples[i].reward_failed = true;
    ++unscored.samples;
  }
  if (unscored.samples > 0 && config.on_failure() == v1::ON_REWARD_FAILURE_DROP_GROUP) {
    for (rl::Trajectory& sample : samples) sample.reward_failed = true;
    unscored.samples = static_cast<uint32_t>(samples.size());
  }
  return unscored;
}

GroupDelivery::GroupDelivery(const RunSpec& spec, reward::RewardClient& rewards, LearnerLink& link,
                             RolloutMetrics& metrics, const Clock& clock)
    : spec_(spec), rewards_(rewards), link_(link), metrics_(metrics), clock_(clock) {
  for (const std::string& endpoint : spec_.sink_endpoints) {
    senders_.push_back(std::make_unique<ExperienceSender>(endpoint, spec_.rpc_timeout));
  }
}

void GroupDelivery::Cancel() {
  for (const auto& sender : senders_) sender->Cancel();
}

void GroupDelivery::Deliver(const v1::Lease& lease, SampledGroup sampled, double sample_seconds) {
  CompareSamples(spec_.duplicate_radius, sampled);
  const absl::Duration start = clock_.Now();
  const TraceScope scope(link_.TraceOf(lease));
  const auto scores =
      rewards_.ScoreMedia(lease.prompt().text(), lease.prompt().metadata_json(),
                          {sampled.media.begin(), sampled.media.end()}, {.waits = true});
  const double reward_seconds = absl::ToDoubleSeconds(clock_.Now() - start);
  if (!TakeScores(lease, scores, reward_seconds, sampled)) return;
  const absl::StatusOr<v1::InsertResponse::Ack> ack =
      Send(lease, std::move(sampled), sample_seconds, reward_seconds);
  const double seconds = absl::ToDoubleSeconds(clock_.Now() - start);
  if (!ack.ok()) {
    NotDelivered(lease, ack.status(), seconds);
    link_.Finish(lease.lease_id(), {.failure = ack.status().ToString(), .discarded = true});
    return;
  }
  metrics_.GroupDelivered(NameOf(ack->outcome()), seconds);
  OXBOW_LOG(Debug) << "group delivered" << Field("group", lease.group_id())
                   << Field("lease", lease.lease_id()) << Field("step", lease.learner_step())
                   << Field("worker", spec_.worker_id) << Field("outcome", NameOf(ack->outcome()))
                   << Field("seconds", seconds);
  if (ack->outcome() == v1::INSERT_OUTCOME_INVALID) {
    OXBOW_LOG(Error) << "group refused" << Field("group", lease.group_id())
                     << Field("lease", lease.lease_id()) << Field("worker", spec_.worker_id)
                     << Field("reason", ack->error());
    link_.Finish(lease.lease_id(), {.failure = absl::StrCat("refused: ", ack->error())});
    return;
  }
  link_.Finish(lease.lease_id(), {});
}

void GroupDelivery::NotDelivered(const v1::Lease& lease, const absl::Status& why, double seconds) {
  OXBOW_LOG(Warning) << "group not delivered" << Field("group", lease.group_id())
                     << Field("lease", lease.lease_id()) << Field("step", lease.learner_step())
                     << Field("worker", spec_.worker_id) << Field("reason", why.ToString());
  metrics_.GroupDelivered("failed", seconds);
}

// False if the lease has ended here.
bool GroupDelivery::TakeScores(const v1::Lease& lease,
                               const std::vector<absl::StatusOr<reward::Scores>>& scores,
                               double seconds, SampledGroup& sampled) {
  metrics_.GroupScored(seconds);
  const absl::StatusOr<Unscored> unscored =
      ApplyScores(spec_.reward, lease.drops_unscored(), scores, sampled.trajectories);
  if (!unscored.ok()) {
    NotDelivered(lease, unscored.status(), seconds);
    const bool answered = reward::IsUnscorable(unscored.status());
    // Without an answer the worker leaves: it gives the lease back, which is no failure.
    link_.Finish(lease.lease_id(),
                 {.failure = answered ? std::string(unscored.status().message()) : "",
                  .unscored = answered});
    return false;
  }
  for (const auto& [name, samples] : unscored->observed) metrics_.ObservedFailed(name, samples);
  if (unscored->samples > 0) {
    link_.Unscored(lease.lease_id(), unscored->samples, std::string(unscored->reason.message()));
  }
  return true;
}

absl::StatusOr<v1::InsertResponse::Ack> GroupDelivery::Send(const v1::Lease& lease,
                                                            SampledGroup sampled,
                                                            double sample_seconds,
                                                            double reward_seconds) {
  if (lease.sink_rank() >= senders_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("no such learner rank: ", lease.sink_rank()));
  }
  rl::Group group;
  group.id = GroupId(lease.group_id());
  group.prompt_id = PromptId(lease.prompt().id());
  group.prompt_text = lease.prompt().text();
  group.prompt_metadata_json = lease.prompt().metadata_json();
  group.trajectories = std::move(sampled.trajectories);
  v1::Group message = rpc::ToProto(group, spec_.sampling.Id(), spec_.storage);
  message.set_learner_step(lease.learner_step());
  message.set_lease_id(lease.lease_id());
  message.set_epoch(spec_.epoch.value);
  message.set_worker_id(spec_.worker_id);
  message.set_sample_seconds(sample_seconds);
  message.set_reward_seconds(reward_seconds);
  if (!spec_.buffer_endpoints.empty()) AddPicture(sampled.media, message);
  group = {};  // The message has its bytes.
  return senders_[lease.sink_rank()]->Send(
      std::move(message), [&](absl::Duration wait) { return link_.Pause(lease.lease_id(), wait); });
}

}  // namespace oxbow::rollout
