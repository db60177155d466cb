// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"
#include "bench/coordinator_egress.h"
#include "bench/fleet/learner_ranks.h"
#include "bench/fleet/made_up_group.h"
#include "bench/fleet/own_account.h"
#include "core/parallel/share.h"
#include "metrics/exported_metrics.h"
#include "metrics/step_metrics.h"
#include "rpc/server.h"
#include "services/learner/coordinator/coordinator_service.h"
#include "services/learner/coordinator/experience_sink_service.h"
#include "services/learner/ranks/rank_leader.h"

namespace oxbow::bench {
namespace {

constexpr absl::Duration kJoinMax = absl::Seconds(60);

uint64_t CommittedSteps(const Load& load) {
  const auto text = ReadFile(StepsFile(load));
  return text.ok() ? static_cast<uint64_t>(std::count(text->begin(), text->end(), '\n')) : 0;
}

v1::RegisterResponse Registration(const Load& load, const std::string& own_sink,
                                  const learner::RankLeader& ranks) {
  v1::RegisterResponse registration;
  registration.set_epoch(load.epoch);
  registration.add_sink_endpoints(own_sink);
  for (const std::string& sink : ranks.sinks()) registration.add_sink_endpoints(sink);
  for (const std::string& reward : load.reward_endpoints) {
    registration.add_reward_endpoints(reward);
  }
  registration.set_lease_seconds(load.lease_seconds);
  return registration;
}

class Leader {
 public:
  explicit Leader(const Load& load)
      : load_(load),
        prompts_(load.prompts, load.conditioning_kib << 10),
        budget_(SinkBytes(load)),
        step_(CommittedSteps(load)),
        coordinator_({.leases = {.epoch = Epoch(load.epoch),
                                 .first_step = LearnerStep(step_),
                                 .groups_per_step = load.groups,
                                 .staleness_max = 1 << 20,
                                 .lease_time = absl::Seconds(load.lease_seconds)},
                      .rules = RulesOf(load),
                      .ranks = load.ranks},
                     Clock::Steady(), assembler_, metrics_),
        channel_({.epoch = Epoch(load.epoch), .content = &prompts_.content()}, publish_metrics_,
                 Clock::Steady(), nullptr),
        adapter_(/*base_chunks=*/64, load.adapter_chunks, Epoch(load.epoch)),
        ranks_({.ranks = load.ranks, .group_bytes_max = RulesOf(load).GroupBytesMax()},
               Clock::Steady(), coordinator_,
               [this](const absl::Status& why) {
                 lost_ = true;
                 assembler_.Stop(why);
               }),
        service_(
            coordinator_, [](v1::StatusResponse&) {}, {}, [](const std::string&) {},
            [this](const std::string& worker) { return channel_.RelayOf(worker); }),
        sink_(coordinator_, budget_, RulesOf(load), metrics_) {}

  // Whether a rank went away, and all must start again.
  bool lost() const { return lost_; }

  absl::Status Run() {
    auto server =
        rpc::Server::Start({.listen = load_.leader}, {&service_, &sink_, &channel_, &ranks_});
    if (!server.ok()) return server.status();
    rpc::AnnounceReady("leader", (*server)->endpoint(), "-");
    absl::Status status = ranks_.AwaitAll(kJoinMax);
    if (status.ok()) {
      coordinator_.published().Add(PolicyVersion(0), LearnerStep(0));
      service_.SetRegistration(Registration(load_, (*server)->endpoint(), ranks_));
      for (uint64_t ahead = 0; ahead < load_.ahead; ++ahead) Plan(step_ + ahead);
    }
    while (status.ok() && step_ < load_.steps) status = TakeStep();
    if (status.ok()) {
      coordinator_.Drain(learner::DrainReason::kRunComplete);
      ranks_.Stop(absl::Seconds(5));
      absl::SleepFor(absl::Seconds(1));  // The workers read that it is over.
    }
    channel_.Stop();
    (*server)->Shutdown(absl::Seconds(1));
    account_.Print(absl::StrCat("version=", version_,
                                " at_ms=", absl::ToInt64Milliseconds(published_),
                                " content_bytes=", ContentBytes()));
    return status;
  }

 private:
  void Plan(uint64_t step) {
    if (step >= load_.steps) return;
    learner::StepPlan plan{.step = LearnerStep(step)};
    for (uint64_t i = 0; i < load_.groups; ++i) {
      const uint64_t id = step * load_.groups + i;
      learner::PlannedGroup group{.id = GroupId(id),
                                  .place = static_cast<uint32_t>(i),
                                  .step = LearnerStep(step),
                                  .conditioning = prompts_.Of(id),
                                  .sde = WindowOf(load_, id)};
      group.prompt.set_id(id % load_.prompts + 1);
      group.prompt.set_text(absl::StrCat("a prompt of usual length, with a number: ", id));
      plan.groups.push_back(std::move(group));
    }
    coordinator_.Plan(std::move(plan));
  }

  absl::Status TakeStep() {
    const weights::Snapshot next = adapter_.Next();
    version_ = next.manifest.policy_version();
    published_ = Clock::Steady().Now();
    OXBOW_CHECK(channel_.Publish(next).ok()) << "publish";
    auto received = assembler_.Take(LearnerStep(step_), load_.groups, absl::InfiniteDuration());
    if (!received.ok()) return received.status();
    learner::StepGroups groups;
    groups.received = *std::move(received);
    groups.planned = coordinator_.TakePlanned(LearnerStep(step_));
    ranks_.Announce(LearnerStep(step_), groups);
    if (const absl::Status own = CheckOwn(groups.received); !own.ok()) return own;
    groups.received.clear();
    ranks_.AnnounceSave(step_ + 1);
    // Each rank's word of what it held takes the place of its piece of a checkpoint.
    if (const auto words = ranks_.AwaitSaved(); !words.ok()) return words.status();
    coordinator_.Commit(LearnerStep(step_));
    Note();
    Plan(step_ + load_.ahead);
    ++step_;
    return absl::OkStatus();
  }

  absl::Status CheckOwn(const std::vector<learner::ReceivedGroup>& received) const {
    const parallel::Share share = parallel::ShareOf(received.size(), 0, load_.ranks);
    for (size_t i = 0; i < received.size(); ++i) {
      const v1::Group& group = received[i].group;
      if (group.group_id() != step_ * load_.groups + i) {
        return absl::DataLossError(
            absl::StrCat("step ", step_, ": place ", i, " has group ", group.group_id()));
      }
      if (!share.Has(i)) continue;
      if (const absl::Status content = CheckContent(load_, group); !content.ok()) return content;
    }
    return absl::OkStatus();
  }

  // Bytes of conditioning that this process sent to workers.
  uint64_t ContentBytes() const {
    double bytes = 0;
    for (const prometheus::MetricFamily& family : registry_.Collect()) {
      if (family.name != exported::kLearnerConditioningServedBytesTotal.name) continue;
      for (const prometheus::ClientMetric& metric : family.metric) bytes += metric.counter.value;
    }
    return static_cast<uint64_t>(bytes);
  }

  void Note() {
    std::map<std::string, double> counts;
    coordinator_.events().AddCounts(counts);
    auto file = AppendFile::Open(StepsFile(load_));
    OXBOW_CHECK(file.ok()) << file.status();
    OXBOW_CHECK(file->Append(absl::StrCat(
                                 "step=", step_, " groups=", load_.groups,
                                 " expired=", counts[metric::kRolloutLeasesExpired],
                                 " discarded=", counts[metric::kRolloutGroupsDiscarded],
                                 " at_ms=", absl::ToInt64Milliseconds(Clock::Steady().Now()), "\n"),
                             true)
                    .ok());
  }

  const Load& load_;
  prometheus::Registry registry_;
  learner::LearnerMetrics metrics_{registry_};
  weights::PublishMetrics publish_metrics_{registry_};
  Prompts prompts_;
  const OwnAccount account_;
  ByteBudget budget_;
  learner::GroupAssembler assembler_;
  uint64_t step_;
  uint64_t version_ = 0;      // Published last,
  absl::Duration published_;  // and when, by the steady clock.
  std::atomic<bool> lost_ = false;
  learner::Coordinator coordinator_;
  weights::WeightChannelService channel_;
  Adapter adapter_;
  learner::RankLeader ranks_;
  learner::CoordinatorService service_;
  learner::ExperienceSinkService sink_;
};

}  // namespace

std::filesystem::path StepsFile(const Load& load) {
  return std::filesystem::path(load.directory) / "steps";
}

int RunLeader(const Load& load) {
  Leader leader(load);
  const absl::Status status = leader.Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "rank 0: %s\n", status.ToString().c_str());
  return leader.lost() ? kRankLost : 1;
}

}  // namespace oxbow::bench
