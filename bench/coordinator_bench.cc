// SPDX-License-Identifier: Apache-2.0
// The cost of leases: many simulated workers on one coordinator, over real gRPC, without a model.
//
//   this process                              a child (--serve)
//   W workers, each one Work stream  <---->   CoordinatorService, Coordinator
//   K streams of tiny results        <---->   ExperienceSinkService, GroupAssembler, steps
//   committed
//
// A worker states credit for one group, gets a lease, lets a timer run for the group's time, has
// its result inserted, and states credit again. Lease latency is the time from writing the credit
// to reading the lease, at the worker: both processes' queues count. CPU and memory are the
// child's.
#include <fcntl.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <prometheus/registry.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <deque>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/bounded_queue.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/philox.h"
#include "base/statistics.h"
#include "bench/coordinator_egress.h"
#include "oxbow/v1/experience_sink.grpc.pb.h"
#include "rpc/channel.h"
#include "rpc/server.h"
#include "services/learner/coordinator/coordinator_service.h"
#include "services/learner/coordinator/experience_sink_service.h"
#include "services/learner/record/run_progress.h"

extern char** environ;

namespace oxbow::bench {
namespace {

constexpr uint64_t kEpoch = 1;
constexpr int kSteps = 2;  // Steps of a trajectory: the smallest results possible.
constexpr uint64_t kStepsAhead = 8;

struct Flags {
  bool serve = false;
  std::string relay;  // Where the simulated workers serve each other; set for the child.
  uint64_t prompts = 0;
  uint64_t conditioning_kib = 64;
  size_t held = 8;
  uint64_t base_chunks = 0;
  uint64_t adapter_chunks = 40;
  int workers = 1000;
  double group_seconds = 0.5;
  double warmup_seconds = 3;
  double seconds = 10;
  int channels = 8;
  int sinks = 8;
};

absl::Duration Now() { return Clock::Steady().Now(); }

learner::GroupRules Rules() {
  return {.latent_shape = {1, 2, 2},
          .storage = v1::DTYPE_F32,
          .schedule_id = 7,
          .sde = {true, false},
          .group_size = 2};
}

// ---- The coordinator's process.

// Plans ahead and commits what is whole, as the learner's loop does, without training.
class Steps {
 public:
  // `prompts` and `committed` may be null: groups without conditioning, nothing after a step.
  Steps(learner::Coordinator& coordinator, learner::GroupAssembler& assembler, uint64_t groups,
        const Prompts* prompts, std::function<void()> committed)
      : coordinator_(coordinator),
        assembler_(assembler),
        groups_(groups),
        prompts_(prompts),
        committed_(std::move(committed)) {
    coordinator_.published().Add(PolicyVersion(0), LearnerStep(0));
    for (; planned_ < kStepsAhead; ++planned_) Plan();
    thread_ = std::thread([this] {
      for (uint64_t step = 0; !over_;) {
        if (!assembler_.Take(LearnerStep(step), groups_, absl::Milliseconds(200)).ok()) continue;
        coordinator_.TakePlanned(LearnerStep(step));
        coordinator_.Commit(LearnerStep(step++));
        if (committed_) committed_();
        Plan();
        ++planned_;
      }
    });
  }
  ~Steps() {
    over_ = true;
    thread_.join();
  }

 private:
  void Plan() {
    learner::StepPlan plan{.step = LearnerStep(planned_)};
    for (uint64_t i = 0; i < groups_; ++i) {
      plan.groups.push_back({.id = GroupId(planned_ * groups_ + i), .step = LearnerStep(planned_)});
      plan.groups.back().prompt.set_id(1);
      plan.groups.back().prompt.set_text("a prompt of usual length, with a number: 123456");
      if (prompts_ != nullptr) {
        plan.groups.back().conditioning = prompts_->Of(planned_ * groups_ + i);
      }
    }
    coordinator_.Plan(std::move(plan));
  }

  learner::Coordinator& coordinator_;
  learner::GroupAssembler& assembler_;
  const uint64_t groups_;
  const Prompts* const prompts_;
  const std::function<void()> committed_;
  uint64_t planned_ = 0;
  std::atomic<bool> over_ = false;
  std::thread thread_;
};

// Serves until standard input ends.
void Serve(const Flags& flags) {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);  // As rpc/service_main.cc.
  ConfigureLog(LogLevel::kError, LogFormat::kText, "coordinator_bench");
  prometheus::Registry registry;
  learner::LearnerMetrics metrics(registry);
  learner::GroupAssembler assembler;
  ByteBudget budget(1 << 30);
  const auto groups = static_cast<uint64_t>(flags.workers);
  learner::Coordinator coordinator(
      {.leases = {.epoch = Epoch(kEpoch), .groups_per_step = groups, .staleness_max = 1 << 20},
       .rules = Rules()},
      Clock::Steady(), assembler, metrics);
  learner::RunProgress board(Clock::Steady(), metrics, 0);
  v1::RegisterResponse registration;
  registration.set_epoch(kEpoch);
  registration.add_sink_endpoints("here");
  std::optional<Prompts> prompts;
  if (flags.prompts > 0) prompts.emplace(flags.prompts, flags.conditioning_kib << 10);
  weights::PublishMetrics publish_metrics(registry);
  weights::WeightChannelService channel(
      {.epoch = Epoch(kEpoch), .content = prompts.has_value() ? &prompts->content() : nullptr},
      publish_metrics, Clock::Steady(), nullptr);
  std::optional<Adapter> adapter;
  if (flags.base_chunks > 0) {
    adapter.emplace(flags.base_chunks, flags.adapter_chunks, Epoch(kEpoch));
  }
  const auto publish = [&] {
    if (!adapter.has_value()) return;
    OXBOW_CHECK(channel.Publish(adapter->Next()).ok()) << "publish";
  };
  publish();
  learner::CoordinatorService service(
      coordinator, [&](v1::StatusResponse& status) { board.FillStatus(status); }, registration,
      [](const std::string&) {}, [&](const std::string&) { return flags.relay; });
  learner::ExperienceSinkService sink(coordinator, budget, Rules(), metrics);
  const auto server = rpc::Server::Start({}, {&service, &sink, &channel});
  OXBOW_CHECK(server.ok()) << server.status().ToString();
  const Steps steps(coordinator, assembler, groups, prompts.has_value() ? &*prompts : nullptr,
                    publish);
  rpc::AnnounceReady("coordinator", (*server)->endpoint(), "-");
  char byte;
  while (::read(STDIN_FILENO, &byte, 1) > 0) {
  }
  channel.Stop();
  (*server)->Shutdown(absl::Seconds(1));
}

// The child: alive while this object is.
class Child {
 public:
  Child(const std::string& binary, const Flags& flags, const std::string& relay) {
    int in[2];
    int out[2];
    OXBOW_CHECK(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0) << "pipe";
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    const std::vector<std::string> arguments = {
        binary,
        "--serve",
        absl::StrCat("--workers=", flags.workers),
        absl::StrCat("--prompts=", flags.prompts),
        absl::StrCat("--conditioning-kib=", flags.conditioning_kib),
        absl::StrCat("--base-chunks=", flags.base_chunks),
        absl::StrCat("--adapter-chunks=", flags.adapter_chunks),
        absl::StrCat("--relay=", relay)};
    std::vector<char*> argv;
    for (const std::string& argument : arguments) {
      argv.push_back(const_cast<char*>(argument.c_str()));
    }
    argv.push_back(nullptr);
    OXBOW_CHECK(posix_spawn(&pid_, binary.c_str(), &actions, nullptr, argv.data(), environ) == 0)
        << binary;
    posix_spawn_file_actions_destroy(&actions);
    ::close(in[0]);
    ::close(out[1]);
    stdin_ = in[1];
    FILE* lines = ::fdopen(out[0], "r");
    char line[512] = "";
    OXBOW_CHECK(std::fgets(line, sizeof line, lines) != nullptr) << "the coordinator did not start";
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      if (word.starts_with("grpc=")) endpoint_ = word.substr(5);
    }
    std::fclose(lines);
  }
  ~Child() {
    ::close(stdin_);
    ::waitpid(pid_, nullptr, 0);
  }

  const std::string& endpoint() const { return endpoint_; }

  double cpu_seconds() const {
    std::ifstream in(absl::StrCat("/proc/", pid_, "/stat"));
    std::string word;
    double ticks = 0;
    for (int field = 1; in >> word && field <= 15; ++field) {
      if (field >= 14) ticks += std::stod(word);  // utime, stime
    }
    return ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
  }

  uint64_t StatusField(const std::string& name) const {
    std::ifstream in(absl::StrCat("/proc/", pid_, "/status"));
    for (std::string line; std::getline(in, line);) {
      if (line.starts_with(name + ":")) return std::stoull(line.substr(name.size() + 1));
    }
    return 0;
  }

 private:
  pid_t pid_ = 0;
  int stdin_ = -1;
  std::string endpoint_;
};

// ---- The workers' process.

// Calls back when a time has come. One thread.
class Timers {
 public:
  Timers() : thread_([this] { Loop(); }) {}
  ~Timers() { Stop(); }
  // Calls nobody any more.
  void Stop() {
    {
      absl::MutexLock lock(&mutex_);
      over_ = true;
    }
    if (thread_.joinable()) thread_.join();
  }
  void At(absl::Duration due, std::function<void()> call) {
    absl::MutexLock lock(&mutex_);
    calls_.emplace(due, std::move(call));
  }

 private:
  void Loop() {
    while (true) {
      std::vector<std::function<void()>> due;
      {
        absl::MutexLock lock(&mutex_);
        if (over_) return;
        while (!calls_.empty() && calls_.begin()->first <= Now()) {
          due.push_back(std::move(calls_.begin()->second));
          calls_.erase(calls_.begin());
        }
        if (due.empty()) {
          const auto over = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return over_; };
          mutex_.AwaitWithTimeout(absl::Condition(&over), absl::Milliseconds(1));
        }
      }
      for (const auto& call : due) call();
    }
  }

  absl::Mutex mutex_;
  std::multimap<absl::Duration, std::function<void()>> calls_ ABSL_GUARDED_BY(mutex_);
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

std::string NameOf(int worker) { return absl::StrCat("w", worker); }

struct Job {
  int worker = 0;
  v1::Lease lease;
  std::function<void()> done;
};

// Streams of results: each waits for one acknowledgement after the other.
class Sinks {
 public:
  // Before a result is sent, its worker gets the conditioning.
  Sinks(const std::vector<std::shared_ptr<grpc::Channel>>& channels, int count,
        Conditionings& conditionings)
      : conditionings_(conditionings), jobs_(100'000) {
    for (int i = 0; i < count; ++i) {
      threads_.emplace_back([this, channel = channels[static_cast<size_t>(i) % channels.size()]] {
        Deliver(*v1::ExperienceSink::NewStub(channel));
      });
    }
  }
  ~Sinks() { Stop(); }
  // Drops what waits, and calls nobody any more.
  void Stop() {
    jobs_.Close();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  void Push(Job job) { jobs_.Push(std::move(job)); }
  uint64_t accepted() const { return accepted_; }

 private:
  static v1::Group ResultOf(int worker, const v1::Lease& lease) {
    v1::Group group;
    group.set_worker_id(NameOf(worker));
    group.set_group_id(lease.group_id());
    group.set_lease_id(lease.lease_id());
    group.set_epoch(kEpoch);
    *group.mutable_prompt() = lease.prompt();
    for (uint32_t sample = 0; sample < 2; ++sample) {
      v1::Trajectory& trajectory = *group.add_trajectories();
      trajectory.set_sample(sample);
      trajectory.set_schedule_id(7);
      trajectory.mutable_latents()->set_dtype(v1::DTYPE_F32);
      for (const int64_t size : {kSteps + 1, 1, 2, 2})
        trajectory.mutable_latents()->add_shape(size);
      for (int step = 0; step < kSteps; ++step) {
        trajectory.add_log_prob(-1);
        trajectory.add_sde(step == 0);
        trajectory.add_behaviour_version(0);
      }
    }
    return group;
  }

  void Deliver(v1::ExperienceSink::Stub& stub) {
    const auto context = rpc::ContextWithDeadline(absl::Hours(1));
    const auto stream = stub.Insert(context.get());
    const std::string latents((kSteps + 1) * 16, '\0');
    while (std::optional<Job> job = jobs_.Pop()) {
      conditionings_.Get(job->worker, job->lease);
      v1::InsertRequest request;
      *request.mutable_header() = ResultOf(job->worker, job->lease);
      OXBOW_CHECK(stream->Write(request, grpc::WriteOptions().set_buffer_hint())) << "sink";
      for (uint32_t i = 0; i < 2; ++i) {
        request.mutable_chunk()->set_trajectory(i);
        request.mutable_chunk()->set_data(latents);
        grpc::WriteOptions options;
        if (i == 0) options.set_buffer_hint();
        OXBOW_CHECK(stream->Write(request, options)) << "sink";
      }
      v1::InsertResponse response;
      do {
        OXBOW_CHECK(stream->Read(&response)) << "sink";
      } while (!response.has_ack());
      OXBOW_CHECK(response.ack().outcome() == v1::INSERT_OUTCOME_ACCEPTED)
          << response.ack().error();
      ++accepted_;
      job->done();
    }
    stream->WritesDone();
    context->TryCancel();
    (void)stream->Finish();
  }

  Conditionings& conditionings_;
  BoundedQueue<Job> jobs_;
  std::atomic<uint64_t> accepted_ = 0;
  std::vector<std::thread> threads_;
};

// The state that all workers share.
struct World {
  Timers& timers;
  Sinks& sinks;
  const absl::Duration group_time;
  absl::Mutex mutex;
  bool measuring ABSL_GUARDED_BY(mutex) = false;
  std::vector<double> latencies ABSL_GUARDED_BY(mutex);  // Milliseconds.
};

class SimulatedWorker final : public grpc::ClientBidiReactor<v1::WorkRequest, v1::WorkResponse> {
 public:
  SimulatedWorker(v1::Coordinator::Stub& stub, World& world, int number)
      : world_(world),
        random_({.seed = static_cast<uint64_t>(number)}),
        number_(number),
        name_(NameOf(number)) {
    stub.async()->Work(&context_, this);
    StartRead(&response_);
    StartCall();
  }

  void Begin() {
    v1::WorkRequest hello = Request();
    hello.mutable_hello();
    Write(std::move(hello));
    AskForOne();
  }

  void End() { context_.TryCancel(); }
  void AwaitDone() {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&done_));
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    if (response_.has_lease()) Work(response_.lease());
    StartRead(&response_);
  }

  void OnWriteDone(bool ok) override {
    absl::MutexLock lock(&mutex_);
    writes_.pop_front();
    if (ok && !writes_.empty()) StartWrite(&writes_.front());
  }

  void OnDone(const grpc::Status&) override {
    absl::MutexLock lock(&mutex_);
    done_ = true;
  }

 private:
  v1::WorkRequest Request() const {
    v1::WorkRequest request;
    request.set_epoch(kEpoch);
    request.set_worker_id(name_);
    return request;
  }

  void Write(v1::WorkRequest request) {
    absl::MutexLock lock(&mutex_);
    if (done_) return;
    writes_.push_back(std::move(request));
    if (writes_.size() == 1) StartWrite(&writes_.front());
  }

  void AskForOne() {
    v1::WorkRequest request = Request();
    request.mutable_credit()->set_groups(1);
    asked_ = absl::ToInt64Nanoseconds(Now());
    Write(std::move(request));
  }

  void Work(const v1::Lease& lease) {
    const double waited = absl::ToDoubleMilliseconds(Now() - absl::Nanoseconds(asked_.load()));
    {
      absl::MutexLock lock(&world_.mutex);
      if (world_.measuring) world_.latencies.push_back(waited);
    }
    // Half to one and a half times as long as on average.
    const double share = 0.5 + static_cast<double>(random_.NextBelow(1000)) / 1000;
    world_.timers.At(Now() + share * world_.group_time, [this, lease] {
      world_.sinks.Push({number_, lease, [this, id = lease.lease_id()] {
                           v1::WorkRequest finished = Request();
                           finished.mutable_finished()->set_lease_id(id);
                           Write(std::move(finished));
                           AskForOne();
                         }});
    });
  }

  World& world_;
  RandomStream random_;
  const int number_;
  const std::string name_;
  grpc::ClientContext context_;
  v1::WorkResponse response_;
  std::atomic<int64_t> asked_ = 0;  // Nanoseconds.
  absl::Mutex mutex_;
  std::deque<v1::WorkRequest> writes_ ABSL_GUARDED_BY(mutex_);  // The first is being written.
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
};

std::shared_ptr<grpc::Channel> ChannelOfItsOwn(const std::string& endpoint) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(endpoint, grpc::InsecureChannelCredentials(), arguments);
}

int Measure(const std::string& binary, const Flags& flags) {
  Conditionings conditionings(flags.workers, flags.held, Epoch(kEpoch));
  const Child child(binary, flags, conditionings.endpoint());
  conditionings.Begin(child.endpoint());
  const double memory_before = static_cast<double>(child.StatusField("VmRSS"));
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  std::vector<std::unique_ptr<v1::Coordinator::Stub>> stubs;
  for (int i = 0; i < flags.channels; ++i) {
    channels.push_back(ChannelOfItsOwn(child.endpoint()));
    stubs.push_back(v1::Coordinator::NewStub(channels.back()));
  }
  Timers timers;
  Sinks sinks(channels, flags.sinks, conditionings);
  std::optional<Watchers> watchers;
  const Watchers::Names names{.count = flags.workers};
  if (flags.base_chunks > 0) watchers.emplace(channels, names, "127.0.0.1:1", Epoch(kEpoch));
  World world{.timers = timers, .sinks = sinks, .group_time = absl::Seconds(flags.group_seconds)};
  std::vector<std::unique_ptr<SimulatedWorker>> workers;
  for (int i = 0; i < flags.workers; ++i) {
    workers.push_back(
        std::make_unique<SimulatedWorker>(*stubs[static_cast<size_t>(i) % stubs.size()], world, i));
    timers.At(Now() + i * world.group_time / flags.workers,
              [worker = workers.back().get()] { worker->Begin(); });
  }
  absl::SleepFor(absl::Seconds(flags.warmup_seconds));
  {
    absl::MutexLock lock(&world.mutex);
    world.measuring = true;
  }
  const Conditionings::Count conditioning_before = conditionings.count();
  const Watchers::Count watched_before =
      watchers.has_value() ? watchers->count() : Watchers::Count();
  const double cpu_before = child.cpu_seconds();
  const uint64_t accepted_before = sinks.accepted();
  const absl::Duration start = Now();
  absl::SleepFor(absl::Seconds(flags.seconds));
  std::vector<double> latencies;
  {
    absl::MutexLock lock(&world.mutex);
    world.measuring = false;
    latencies = world.latencies;
  }
  const double seconds = absl::ToDoubleSeconds(Now() - start);
  const double cpu = child.cpu_seconds() - cpu_before;
  const double accepted = static_cast<double>(sinks.accepted() - accepted_before);
  const double memory = static_cast<double>(child.StatusField("VmRSS"));
  const double leases = static_cast<double>(latencies.size());
  std::printf("workers %d, group %.2f s, %.1f s measured\n", flags.workers, flags.group_seconds,
              seconds);
  std::printf("leases %.0f (%.0f a second), results accepted %.0f\n", leases, leases / seconds,
              accepted);
  std::printf("lease latency ms: p50 %.2f  p99 %.2f  max %.2f\n", Quantile(latencies, 0.5),
              Quantile(latencies, 0.99), Quantile(latencies, 1));
  std::printf("coordinator: %.0f us CPU a lease (result included), %.0f %% of a core\n",
              1e6 * cpu / std::max(1.0, leases), 100 * cpu / seconds);
  std::printf("coordinator: %.1f KiB a worker, %lu threads, %.0f MiB in all\n",
              (memory - memory_before) / flags.workers, child.StatusField("Threads"),
              memory / 1024);
  if (flags.prompts > 0) conditionings.PrintSince(conditioning_before);
  if (watchers.has_value()) watchers->PrintSince(watched_before);
  for (const auto& worker : workers) worker->End();
  for (const auto& worker : workers) worker->AwaitDone();
  timers.Stop();
  sinks.Stop();
  return leases > 0 ? 0 : 1;
}

}  // namespace
}  // namespace oxbow::bench

int main(int argc, char** argv) {
  oxbow::bench::Flags flags;
  CLI::App app("Lease latency and cost with many simulated workers");
  app.add_flag("--serve", flags.serve, "be the coordinator (the benchmark starts it itself)");
  app.add_option("--workers", flags.workers, "simulated workers")->check(CLI::Range(1, 100'000));
  app.add_option("--prompts", flags.prompts, "distinct prompts with conditioning; 0: none");
  app.add_option("--conditioning-kib", flags.conditioning_kib, "KiB of one prompt as it travels");
  app.add_option("--held", flags.held, "prompts whose conditioning a worker holds");
  app.add_option("--base-chunks", flags.base_chunks,
                 "chunks of the frozen weights (1 MiB each in a run); 0: no weights");
  app.add_option("--adapter-chunks", flags.adapter_chunks, "chunks that each step publishes");
  app.add_option("--relay", flags.relay, "for --serve: where workers serve each other");
  app.add_option("--group-seconds", flags.group_seconds, "mean time a worker takes for a group");
  app.add_option("--seconds", flags.seconds, "how long to measure");
  app.add_option("--channels", flags.channels, "TCP connections")->check(CLI::Range(1, 1000));
  app.add_option("--sinks", flags.sinks, "streams of results")->check(CLI::Range(1, 32));
  CLI11_PARSE(app, argc, argv);
  if (flags.serve) {
    oxbow::bench::Serve(flags);
    return 0;
  }
  return oxbow::bench::Measure("/proc/self/exe", flags);
}
