// SPDX-License-Identifier: Apache-2.0
#include "bench/fleet/worker_host.h"

#include <atomic>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/philox.h"
#include "bench/coordinator_egress.h"
#include "bench/fleet/lease_stream.h"
#include "bench/fleet/made_up_group.h"
#include "bench/fleet/own_account.h"
#include "rpc/channel.h"
#include "rpc/protocol_revision.h"
#include "rpc/retry.h"
#include "rpc/server.h"
#include "rpc/status.h"
#include "services/reward/reward_client.h"
#include "services/rollout/conditioning_source.h"
#include "services/rollout/experience_sender.h"

namespace oxbow::bench {
namespace {

constexpr absl::Duration kSilenceMax = absl::Seconds(60);

std::string NameOf(int worker) { return absl::StrCat("w", worker); }

// The state that all workers of the host share while the learner's epoch lasts.
struct Session {
  uint64_t epoch = 0;
  std::unique_ptr<reward::RewardClient> rewards;
  std::unique_ptr<rollout::ConditioningSource> conditioning;
  std::vector<std::unique_ptr<rollout::ExperienceSender>> senders;  // By rank.
  std::unique_ptr<Watchers> watchers;
};

class Host {
 public:
  explicit Host(const Load& load)
      : load_(load),
        channel_(rpc::Connect(load.leader)),
        stub_(v1::Coordinator::NewStub(channel_)) {
    auto relay = weights::WeightRelay::Start({.content_bytes_max = load.held_mib << 20}, follow_);
    OXBOW_CHECK(relay.ok()) << relay.status();
    relay_ = *std::move(relay);
    rpc::AnnounceReady("host", relay_->endpoint(), "-");
    streams_.resize(static_cast<size_t>(load.count));
    for (int i = 0; i < load.count; ++i) {
      threads_.emplace_back([this, i] { RunWorker(i); });
    }
    renewer_ = std::thread([this] {
      while (!over_.WaitForNotificationWithTimeout(absl::Seconds(load_.lease_seconds / 3))) {
        absl::MutexLock lock(&mutex_);
        for (LeaseStream* stream : streams_) {
          if (stream != nullptr) stream->Renew();
        }
      }
    });
  }

  // Waits for the end of all workers.
  int Join() {
    for (std::thread& thread : threads_) thread.join();
    over_.Notify();
    renewer_.join();
    std::ofstream file(absl::StrCat(load_.directory, "/latencies-", load_.first));
    absl::MutexLock lock(&mutex_);
    for (const double ms : latencies_) file << ms << "\n";
    const Watchers::Told told = session_->watchers->told();
    account_.Print(absl::StrCat("accepted=", accepted_.load(), " late=", late_.load(),
                                " failed=", failed_.load(), " sent_bytes=", bytes_.load(),
                                " busy_ms=", busy_ms_.load(), " version=", told.version,
                                " at_ms=", absl::ToInt64Milliseconds(told.when)));
    return failed_ == 0 ? 0 : 1;
  }

 private:
  void RunWorker(int number) {
    const std::string name = NameOf(load_.first + number);
    RandomStream random({.seed = static_cast<uint64_t>(load_.first + number)});
    for (bool complete = false; !complete;) {
      const std::shared_ptr<Session> session = Register(name);
      LeaseStream stream(*stub_, session->epoch, name);
      SetStream(number, &stream);
      stream.Ask();
      while (const std::optional<v1::Lease> lease = stream.Next()) {
        Note(stream.waited_ms());
        const absl::Duration leased = Clock::Steady().Now();
        // Half to one and a half times as long as on average.
        const double share = 0.5 + static_cast<double>(random.NextBelow(1000)) / 1000;
        const std::string failure =
            Produce(*session, name, *lease, share * load_.group_seconds, stream);
        stream.Finished(lease->lease_id(), failure);
        busy_ms_ +=
            static_cast<uint64_t>(absl::ToInt64Milliseconds(Clock::Steady().Now() - leased));
        stream.Ask();
      }
      SetStream(number, nullptr);
      complete = stream.complete();
    }
  }

  // Why the group was not produced; empty if it was, or if nobody wants it any more.
  std::string Produce(Session& session, const std::string& worker, const v1::Lease& lease,
                      double seconds, LeaseStream& stream) {
    if (session.conditioning->Held(lease) == nullptr) {
      const auto fetched = session.conditioning->Fetch(lease);
      if (!fetched.ok()) return Failed(fetched.status(), stream);
    }
    if (load_.holds && lease.learner_step() > 0) return HoldUntilKilled(stream);
    absl::SleepFor(absl::Seconds(seconds));
    std::vector<double> scores;
    const std::vector<Image8> pictures = PicturesOf(load_, lease.group_id());
    std::vector<reward::Frames> media;
    for (const Image8& picture : pictures) media.emplace_back(&picture, 1);
    for (const auto& score :
         session.rewards->ScoreMedia(lease.prompt().text(), "", media, {.waits = true})) {
      if (!score.ok()) return Failed(score.status(), stream);
      scores.push_back(score->at(kReward));
    }
    v1::Group group = MakeGroup(load_, worker, session.epoch, lease, scores);
    const auto pause = [&stream](absl::Duration wait) { return !stream.AwaitEnd(wait); };
    const auto ack = session.senders.at(lease.sink_rank())->Send(std::move(group), pause);
    if (!ack.ok()) return Failed(ack.status(), stream);
    switch (ack->outcome()) {
      case v1::INSERT_OUTCOME_ACCEPTED:
      case v1::INSERT_OUTCOME_DUPLICATE:
        ++accepted_;
        bytes_ += LatentBytes(load_, lease.group_id());
        return "";
      case v1::INSERT_OUTCOME_FENCED:
      case v1::INSERT_OUTCOME_SUPERSEDED:
        ++late_;
        return "";
      default:
        return Failed(absl::InternalError(ack->error()), stream);
    }
  }

  // Renews the lease and never ends it, until the fleet, which is told, kills this process.
  std::string HoldUntilKilled(LeaseStream& stream) {
    std::printf("HOLDS\n");
    std::fflush(stdout);
    stream.AwaitEnd(absl::InfiniteDuration());
    return "";
  }

  // A worker whose learner is gone has not failed. A busy machine hears late that a stream has
  // ended.
  std::string Failed(const absl::Status& why, LeaseStream& stream) {
    if (stream.AwaitEnd(absl::Seconds(10))) return "";
    ++failed_;
    std::fprintf(stderr, "%s\n", why.ToString().c_str());
    return why.ToString();
  }

  // Asks until the learner answers.
  std::shared_ptr<Session> Register(const std::string& name) {
    v1::RegisterRequest request;
    request.set_worker_id(name);
    request.set_protocol(kProtocolRevision);
    v1::RegisterResponse response;
    rpc::Backoff backoff(absl::Milliseconds(200), absl::Seconds(5));
    while (true) {
      const auto context = rpc::ContextWithDeadline(absl::Seconds(30));
      if (stub_->Register(context.get(), request, &response).ok()) return SessionOf(response);
      absl::SleepFor(backoff.Next());
    }
  }

  std::shared_ptr<Session> SessionOf(const v1::RegisterResponse& registration) {
    absl::MutexLock lock(&mutex_);
    if (session_ != nullptr && session_->epoch == registration.epoch()) return session_;
    auto session = std::make_shared<Session>();
    session->epoch = registration.epoch();
    auto rewards =
        reward::RewardClient::Create({.endpoints = {registration.reward_endpoints().begin(),
                                                    registration.reward_endpoints().end()}});
    OXBOW_CHECK(rewards.ok()) << rewards.status();
    session->rewards = *std::move(rewards);
    session->conditioning = std::make_unique<rollout::ConditioningSource>(
        rollout::ConditioningSource::Options{.learner = load_.leader,
                                             .epoch = Epoch(session->epoch),
                                             .worker_id = NameOf(load_.first)},
        relay_->content(), metrics_, follow_, Clock::Steady());
    for (const std::string& sink : registration.sink_endpoints()) {
      session->senders.push_back(std::make_unique<rollout::ExperienceSender>(sink, kSilenceMax));
    }
    session->watchers = std::make_unique<Watchers>(
        std::vector{channel_}, Watchers::Names{.first = load_.first, .count = load_.count},
        relay_->endpoint(), Epoch(session->epoch), /*reads=*/true);
    session_ = session;
    return session;
  }

  void SetStream(int number, LeaseStream* stream) {
    absl::MutexLock lock(&mutex_);
    streams_[static_cast<size_t>(number)] = stream;
  }

  void Note(double waited_ms) {
    absl::MutexLock lock(&mutex_);
    latencies_.push_back(waited_ms);
  }

  const Load& load_;
  prometheus::Registry registry_;
  rollout::RolloutMetrics metrics_{registry_};
  weights::FollowMetrics follow_{registry_};
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Coordinator::Stub> stub_;
  const OwnAccount account_;
  std::unique_ptr<weights::WeightRelay> relay_;
  std::atomic<uint64_t> accepted_ = 0;
  std::atomic<uint64_t> late_ = 0;
  std::atomic<uint64_t> failed_ = 0;
  std::atomic<uint64_t> bytes_ = 0;
  std::atomic<uint64_t> busy_ms_ = 0;  // From lease to result, over all workers.
  absl::Mutex mutex_;
  std::shared_ptr<Session> session_ ABSL_GUARDED_BY(mutex_);
  std::vector<LeaseStream*> streams_ ABSL_GUARDED_BY(mutex_);  // By worker; null: not connected.
  std::vector<double> latencies_ ABSL_GUARDED_BY(mutex_);
  absl::Notification over_;
  std::thread renewer_;
  std::vector<std::thread> threads_;
};

}  // namespace

int RunHost(const Load& load) {
  Host host(load);
  return host.Join();
}

}  // namespace oxbow::bench
