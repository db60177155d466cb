// SPDX-License-Identifier: Apache-2.0
// Measures the time until new weights reach N workers, and the bytes that the learner sends for it.
//
//   weight_fanout_bench [--megabytes 38] [--rounds 7] [--workers 1,2,4,8] [--line-mb-s 0]
//                       [--fanouts 2,0] [--broadcast]
//
// The learner is this process; every worker is a separate process with its relay and follower, all
// over loopback. A round publishes a snapshot with entirely new bytes, and ends when every worker
// has verified all of it and reported that. Between rounds the same bytes go to one receiver as a
// plain gRPC stream of the same messages, without hashing: the minimal cost of a copy. With
// --line-mb-s every process sends at most that fast; then the network is the limit, as in a
// cluster, and not the cores of this machine. With --broadcast the workers are in one broadcast
// group, and a row ends with the share of rounds that reached all of them; the send limit does not
// apply to broadcasts. The CPU column is the CPU time of all processes per delivered copy, divided
// by that of the plain stream: it does not depend on other work on the machine.
#include <benchmark/benchmark.h>
#include <prometheus/registry.h>
#include <signal.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/log.h"
#include "base/memory_limits.h"
#include "base/statistics.h"
#include "metrics/exported_metrics.h"
#include "rpc/channel.h"
#include "rpc/server.h"
#include "services/weights/broadcast_group.h"
#include "services/weights/snapshot_maker.h"
#include "services/weights/weight_channel_service.h"
#include "services/weights/weight_follower.h"
#include "services/weights/weight_relay.h"
#include "telemetry/metrics.h"
#include "tests/testing/process.h"

namespace oxbow::weights {
namespace {

constexpr absl::Duration kRoundAtMost = absl::Minutes(2);

struct Flags {
  uint64_t megabytes = 38;
  int rounds = 7;
  std::vector<size_t> workers = {1, 2, 4, 8};
  std::vector<size_t> fanouts = {2, 0};
  double line_mb_s = 0;
  bool broadcast = false;
  std::string worker_of;    // Child: follow this learner.
  std::string receiver_of;  // Child: receive plain streams.
  std::string id;
};

// Limits the bytes per second of all calls of a process together.
class Line {
 public:
  explicit Line(double mb_s) : mb_s_(mb_s) {}

  void Pass(uint64_t bytes) {
    if (mb_s_ <= 0) return;
    absl::Time sent;
    {
      absl::MutexLock lock(&mutex_);
      free_ =
          std::max(free_, absl::Now()) + absl::Seconds(static_cast<double>(bytes) / 1e6 / mb_s_);
      sent = free_;
    }
    absl::SleepFor(sent - absl::Now());
  }

 private:
  const double mb_s_;
  absl::Mutex mutex_;
  absl::Time free_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

// CPU seconds that a process has used.
double CpuSeconds(pid_t pid) {
  clockid_t clock = 0;
  timespec time = {};
  if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Sends its bytes as gRPC messages, without hashes.
class PlainStream final : public v1::WeightChannel::Service {
 public:
  PlainStream(const Snapshot& snapshot, Line& line) : snapshot_(snapshot), line_(line) {}
  grpc::Status Fetch(grpc::ServerContext*, const v1::FetchRequest*,
                     grpc::ServerWriter<v1::FetchResponse>* writer) override {
    for (const auto& [hash, chunk] : snapshot_.chunks) {
      v1::FetchResponse piece;
      piece.set_data(*chunk);
      line_.Pass(piece.data().size());
      if (!writer->Write(piece)) break;
    }
    return grpc::Status::OK;
  }
  // A receiver calls this for its next round, and reports the duration of the last one.
  grpc::Status ReportApplied(grpc::ServerContext*, const v1::ReportAppliedRequest* request,
                             v1::ReportAppliedResponse*) override {
    absl::MutexLock lock(&mutex_);
    if (request->policy_version() > 0) seconds_ = request->fetch_seconds();
    const auto wanted = [this]()
                            ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return wanted_ || stopped_; };
    mutex_.Await(absl::Condition(&wanted));
    wanted_ = false;
    return stopped_ ? grpc::Status::CANCELLED : grpc::Status::OK;
  }
  void Stop() {
    absl::MutexLock lock(&mutex_);
    stopped_ = true;
  }
  double Round() {
    absl::MutexLock lock(&mutex_);
    seconds_ = 0;
    wanted_ = true;
    const auto done = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return seconds_ > 0; };
    OXBOW_CHECK(mutex_.AwaitWithTimeout(absl::Condition(&done), kRoundAtMost)) << "plain stream";
    return seconds_;
  }

 private:
  const Snapshot& snapshot_;
  Line& line_;
  absl::Mutex mutex_;
  bool wanted_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  double seconds_ ABSL_GUARDED_BY(mutex_) = 0;
};

int RunReceiver(const Flags& flags) {
  const auto stub = v1::WeightChannel::NewStub(rpc::Connect(flags.receiver_of));
  v1::ReportAppliedRequest report;
  while (true) {
    v1::ReportAppliedResponse answer;
    if (!stub->ReportApplied(rpc::ContextWithDeadline(absl::Hours(1)).get(), report, &answer)
             .ok()) {
      return 0;
    }
    const absl::Time start = absl::Now();
    const auto context = rpc::ContextWithDeadline(kRoundAtMost);
    const auto reader = stub->Fetch(context.get(), v1::FetchRequest());
    v1::FetchResponse piece;
    while (reader->Read(&piece)) benchmark::DoNotOptimize(piece.data().data());
    if (!reader->Finish().ok()) return 1;
    report.set_policy_version(1);
    report.set_fetch_seconds(absl::ToDoubleSeconds(absl::Now() - start));
  }
}

int RunWorker(const Flags& flags) {
  prometheus::Registry registry;
  FollowMetrics metrics(registry);
  Line line(flags.line_mb_s);
  auto relay =
      WeightRelay::Start({.before_piece = [&line](uint64_t bytes) { line.Pass(bytes); }}, metrics);
  OXBOW_CHECK(relay.ok()) << relay.status();
  absl::Notification made;
  std::unique_ptr<WeightFollower> follower;
  follower = std::make_unique<WeightFollower>(
      WeightFollower::Options{.endpoints = {flags.worker_of},
                              .epoch = Epoch(1),
                              .worker_id = flags.id,
                              .peer_silence = absl::Seconds(30),
                              .relay = relay->get(),
                              .join_broadcast_group = JoinOverRanks({})},
      metrics, Clock::Steady(), [&] {
        made.WaitForNotification();
        const auto snapshot = follower->TakeNewest();
        if (!snapshot) return;
        v1::ReportAppliedRequest report;
        report.set_policy_version(snapshot->manifest.policy_version());
        follower->Report(report).IgnoreError();
      });
  made.Notify();
  rpc::BlockStopSignals();
  rpc::WaitForStopSignal();
  return 0;
}

// A snapshot in which every chunk is new.
Snapshot MakeVersion(uint64_t version, uint64_t bytes) {
  std::mt19937_64 random(version);
  std::string data(bytes, '\0');
  for (size_t i = 0; i + 8 <= bytes; i += 8) {
    const uint64_t word = random();
    std::memcpy(&data[i], &word, 8);
  }
  TensorBytesByName tensors;
  tensors["weights"] = {io::DType::kU8, {static_cast<int64_t>(bytes)}, std::move(data)};
  return MakeSnapshot({Epoch(1), PolicyVersion(version), LearnerStep(version)}, {}, tensors);
}

// A learner and its workers.
class Fleet {
 public:
  Fleet(const Flags& flags, const std::string& self, size_t workers, size_t fanout)
      : workers_(workers), line_(flags.line_mb_s) {
    service_ = std::make_unique<WeightChannelService>(
        WeightChannelService::Options{
            .epoch = Epoch(1),
            .snapshots_kept = 2,
            .fanout = fanout,
            .before_piece =
                [this](uint64_t bytes) {
                  line_.Pass(bytes);
                  absl::MutexLock lock(&mutex_);
                  sent_ += bytes;
                },
            .join_broadcast_group = flags.broadcast ? JoinOverRanks({}) : nullptr},
        metrics_, Clock::Steady(), [this](const v1::ReportAppliedRequest& report) {
          absl::MutexLock lock(&mutex_);
          applied_[report.policy_version()].insert(report.worker_id());
        });
    auto server = rpc::Server::Start({}, {service_.get()});
    OXBOW_CHECK(server.ok()) << server.status();
    server_ = *std::move(server);
    for (size_t i = 0; i < workers; ++i) {
      auto child = testing::Process::Start(
          {.argv = {self, "--worker-of", server_->endpoint(), "--id", "w" + std::to_string(i),
                    "--line-mb-s", std::to_string(flags.line_mb_s)}});
      OXBOW_CHECK(child.ok()) << child.status();
      children_.push_back(*std::move(child));
    }
    Publish(MakeVersion(1, 1 << 20));  // Now all workers know their peers.
    if (!flags.broadcast) return;
    const absl::Time until = absl::Now() + kRoundAtMost;
    while (Sample(exported::kWeightsBroadcastMembers.name) < static_cast<double>(workers)) {
      OXBOW_CHECK(absl::Now() < until) << "broadcast group";
      absl::SleepFor(absl::Milliseconds(5));
    }
  }
  ~Fleet() {
    for (auto& child : children_) child->Kill(SIGKILL);
    service_->Stop();
  }

  // Seconds until every worker has the snapshot.
  double Publish(const Snapshot& snapshot) {
    const absl::Time start = absl::Now();
    {
      absl::MutexLock lock(&mutex_);
      sent_ = 0;
    }
    OXBOW_CHECK(service_->Publish(snapshot).ok()) << "publish";
    absl::MutexLock lock(&mutex_);
    const auto done = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return applied_[snapshot.manifest.policy_version()].size() == workers_;
    };
    OXBOW_CHECK(mutex_.AwaitWithTimeout(absl::Condition(&done), kRoundAtMost)) << "fleet";
    return absl::ToDoubleSeconds(absl::Now() - start);
  }
  double cpu_seconds() const {
    double seconds = 0;
    for (const auto& child : children_) seconds += CpuSeconds(child->pid());
    return seconds + CpuSeconds(0);
  }
  // Number of completed rounds.
  double whole_rounds() const {
    return Sample(absl::StrCat(exported::kWeightsBroadcastRoundsTotal.name, "{outcome=\"whole\"}"));
  }
  uint64_t sent() {
    absl::MutexLock lock(&mutex_);
    return sent_;
  }

 private:
  double Sample(const std::string& series) const {
    const std::string text = telemetry::ScrapeText(registry_);
    const size_t found = text.find("\n" + series + " ");
    return found == std::string::npos ? 0 : std::strtod(&text[found + series.size() + 2], nullptr);
  }

  const size_t workers_;
  Line line_;
  prometheus::Registry registry_;
  PublishMetrics metrics_{registry_};
  absl::Mutex mutex_;
  std::map<uint64_t, std::set<std::string>> applied_ ABSL_GUARDED_BY(mutex_);
  uint64_t sent_ ABSL_GUARDED_BY(mutex_) = 0;
  std::unique_ptr<WeightChannelService> service_;
  std::unique_ptr<rpc::Server> server_;
  std::vector<std::unique_ptr<testing::Process>> children_;
};

double Median(const std::vector<double>& values) { return Quantile(values, 0.5); }

int RunLearner(const Flags& flags, const std::string& self) {
  const uint64_t bytes = flags.megabytes * 1'000'000;
  const auto mb = static_cast<double>(flags.megabytes);
  Line line(flags.line_mb_s);
  const Snapshot fixed = MakeVersion(1'000'000, bytes);
  PlainStream plain(fixed, line);
  auto plain_server = rpc::Server::Start({}, {&plain});
  OXBOW_CHECK(plain_server.ok()) << plain_server.status();
  auto receiver =
      testing::Process::Start({.argv = {self, "--receiver-of", (*plain_server)->endpoint()}});
  OXBOW_CHECK(receiver.ok()) << receiver.status();
  plain.Round();  // Opens the connection.

  std::printf("%.0f MB, medians of %d rounds", mb, flags.rounds);
  if (flags.line_mb_s > 0) std::printf(", every process sends %.0f MB/s at most", flags.line_mb_s);
  std::printf("\n%8s %8s %10s %10s %12s %14s %14s %14s\n", "workers", "fan-out", "ms", "plain ms",
              "copies sent", "time / plain", "MB/s / plain", "CPU / plain");
  uint64_t version = 2;
  for (const size_t fanout : flags.fanouts) {
    for (const size_t workers : flags.workers) {
      Fleet fleet(flags, self, workers, fanout);
      std::vector<double> seconds;
      std::vector<double> plain_seconds;
      std::vector<double> copies;
      std::vector<double> cpu;
      std::vector<double> plain_cpu;
      for (int round = -1; round < flags.rounds; ++round) {
        const Snapshot snapshot = MakeVersion(version++, bytes);
        const double before = fleet.cpu_seconds();
        const double took = fleet.Publish(snapshot);
        const double between = fleet.cpu_seconds();
        const double receiver_before = CpuSeconds((*receiver)->pid()) + CpuSeconds(0);
        const double alone = plain.Round();
        const double receiver_after = CpuSeconds((*receiver)->pid()) + CpuSeconds(0);
        if (round < 0) continue;  // Warms up caches and flow-control windows.
        seconds.push_back(took);
        plain_seconds.push_back(alone);
        cpu.push_back((between - before) / static_cast<double>(workers));
        plain_cpu.push_back(receiver_after - receiver_before);
        copies.push_back(static_cast<double>(fleet.sent()) / static_cast<double>(bytes));
      }
      const double ratio = Median(seconds) / Median(plain_seconds);
      std::printf("%8zu %8zu %10.1f %10.1f %12.2f %14.2f %14.2f %14.2f", workers, fanout,
                  1e3 * Median(seconds), 1e3 * Median(plain_seconds), Median(copies), ratio,
                  static_cast<double>(workers) / ratio, Median(cpu) / Median(plain_cpu));
      if (flags.broadcast) std::printf("   whole %.2f", fleet.whole_rounds() / (flags.rounds + 1));
      std::printf("\n");
      std::fflush(stdout);
    }
  }
  plain.Stop();
  return 0;
}

}  // namespace
}  // namespace oxbow::weights

int main(int argc, char** argv) {
  oxbow::KeepFreedMemory();
  oxbow::weights::Flags flags;
  CLI::App app("Time and egress of new weights to N workers.");
  app.add_option("--megabytes", flags.megabytes, "changed weights, 10^6 bytes");
  app.add_option("--rounds", flags.rounds, "per row of the table");
  app.add_option("--workers", flags.workers, "numbers of workers")->delimiter(',');
  app.add_option("--fanouts", flags.fanouts, "fan-outs; 0: all from the learner")->delimiter(',');
  app.add_option("--line-mb-s", flags.line_mb_s, "send limit of each process; 0: none");
  app.add_flag("--broadcast", flags.broadcast, "send by broadcast; the relay sends what it misses");
  app.add_option("--worker-of", flags.worker_of)->group("");
  app.add_option("--receiver-of", flags.receiver_of)->group("");
  app.add_option("--id", flags.id)->group("");
  CLI11_PARSE(app, argc, argv);
  if (!flags.worker_of.empty()) return oxbow::weights::RunWorker(flags);
  if (!flags.receiver_of.empty()) return oxbow::weights::RunReceiver(flags);
  return oxbow::weights::RunLearner(flags, argv[0]);
}
