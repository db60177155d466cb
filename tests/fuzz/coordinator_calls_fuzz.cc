// SPDX-License-Identifier: Apache-2.0
// For any calls of two workers: the coordinator and its sink answer, keep to their byte budget, and
// hand the learner only whole, finite groups that were planned, each once.
#include <cmath>
#include <cstring>
#include <list>
#include <memory>
#include <set>

#include "base/check.h"
#include "services/learner/coordinator/coordinator_service.h"
#include "services/learner/coordinator/experience_sink_service.h"
#include "services/learner/record/run_progress.h"
#include "telemetry/metrics.h"
#include "tests/fuzz/call_script.h"
#include "tests/fuzz/served_stream.h"

namespace oxbow::learner {
namespace {

constexpr uint64_t kEpoch = 4, kHead = 5, kBudget = 256;  // A whole step.
constexpr uint32_t kGroups = 2, kGroupSize = 2, kKept = 1;
constexpr int kSteps = 3, kLatent = 4;  // Numbers of a latent.

enum Call : uint8_t {
  kRegister,
  kStatus,
  kDrain,
  kWork,
  kWork2,
  kInsert,
  kInsert2,
  kHangUp,
  kTime,
  kLoop,
  kCalls
};

GroupRules Rules() {
  return {.latent_shape = {1, 2, 2},
          .storage = v1::DTYPE_F32,
          .schedule_id = 77,
          .sde = {true, true, false},
          .group_size = kGroupSize};
}

// The first group of a step has a replayed head.
StepPlan PlanOf(uint64_t step) {
  StepPlan plan{.step = LearnerStep(step)};
  for (uint64_t i = 0; i < kGroups; ++i) {
    PlannedGroup group{.id = GroupId(step * kGroups + i), .step = LearnerStep(step)};
    group.prompt.set_id(100 + i);
    group.prompt.set_text("text 123");
    if (i == 0) group.kind = MixedGroup{{.entry = EntryId(kHead), .kept_steps = kKept}};
    plan.groups.push_back(group);
  }
  return plan;
}

class Learner {
 public:
  Learner()
      : metrics_(registry_),
        coordinator_({.leases = {.epoch = Epoch(kEpoch),
                                 .groups_per_step = kGroups,
                                 .lease_time = absl::Seconds(30),
                                 .stragglers = {.quantile = 0.95, .factor = 1.5, .samples_min = 1}},
                      .rules = Rules()},
                     clock_, assembler_, metrics_),
        progress_(clock_, metrics_, 10),
        service_(
            coordinator_, [this](v1::StatusResponse& status) { progress_.FillStatus(status); },
            Registration(), [](const std::string&) {}, nullptr, fuzz::NoThreads()),
        sink_(coordinator_, budget_, Rules(), metrics_, fuzz::NoThreads()) {
    coordinator_.published().Add(PolicyVersion(0), LearnerStep(0));
    coordinator_.Plan(PlanOf(0));
  }
  ~Learner() {
    for (auto& stream : work_) stream.reset();
    for (auto& stream : inserts_) stream.reset();
    TakeStep();
    const size_t ready = assembler_.ready();  // They hold their bytes.
    OXBOW_CHECK(ready > 0 || budget_.used() == 0) << budget_.used() << " bytes are held for nobody";
  }

  void Do(const fuzz::CallStep& step) {
    switch (step.call) {
      case kRegister:
        Register(step);
        break;
      case kStatus:
        return Unary(step, &CoordinatorService::Status);
      case kDrain:
        return Unary(step, &CoordinatorService::Drain);
      case kWork:
      case kWork2:
        Send(step, OpenWork(step.call - kWork));
        break;
      case kInsert:
      case kInsert2:
        SendInsert(step);
        break;
      case kHangUp:
        HangUp(step.message.empty() ? 0 : static_cast<uint8_t>(step.message[0]));
        break;
      case kTime:
        clock_.Advance(absl::Seconds(step.message.size() * 7));
        coordinator_.Tick();
        break;
      default:
        TakeStep();
    }
    fuzz::RunnerOf(sink_.streams())();
    for (auto& stream : work_) {
      if (stream != nullptr) stream->ServeWritten();
    }
    for (auto& stream : inserts_) {
      if (stream != nullptr) stream->ServeWritten();
    }
    OXBOW_CHECK(budget_.used() <= kBudget) << budget_.used();
  }

 private:
  using Work = fuzz::ServedStream<v1::WorkRequest, v1::WorkResponse>;
  using Insert = fuzz::ServedStream<v1::InsertRequest, v1::InsertResponse>;

  static v1::RegisterResponse Registration() {
    v1::RegisterResponse registration;
    registration.set_epoch(kEpoch);
    registration.add_sink_endpoints("here");
    return registration;
  }

  template <typename Request, typename Response>
  void Unary(const fuzz::CallStep& step,
             grpc::Status (CoordinatorService::*method)(grpc::ServerContext*, const Request*,
                                                        Response*)) {
    Request request;
    Response response;
    if (fuzz::Parse(step.message, request)) (service_.*method)(nullptr, &request, &response);
  }

  void Register(const fuzz::CallStep& step) {
    auto* reactor = CoordinatorService::RegisterStream::Start(
        contexts_.emplace_back(), service_.streams(),
        [this](CoordinatorService::RegisterStream& stream) { return service_.Enter(stream); },
        std::nullopt);
    fuzz::ServedStream<v1::RegisterRequest, v1::RegisterResponse> call(
        reactor, fuzz::RunnerOf(service_.streams()), [](const v1::RegisterResponse& told) {
          OXBOW_CHECK(told.epoch() == kEpoch) << told.epoch();
        });
    call.Send(step.message);
  }

  template <typename Stream>
  static void Send(const fuzz::CallStep& step, std::unique_ptr<Stream>& stream) {
    stream->Send(step.message);
    if (stream->ended() || stream->status().has_value()) stream.reset();
  }

  std::unique_ptr<Work>& OpenWork(int worker) {
    if (work_[worker] == nullptr) {
      work_[worker] = std::make_unique<Work>(service_.Work(nullptr), fuzz::AtOnce(),
                                             [this](const v1::WorkResponse& answer) {
                                               if (answer.has_lease()) lease_ = answer.lease();
                                             });
    }
    return work_[worker];
  }

  // A header without a lease is for the lease granted last.
  void SendInsert(fuzz::CallStep step) {
    const int worker = step.call - kInsert;
    v1::InsertRequest request;
    if (!fuzz::Parse(step.message, request)) return;
    if (request.has_header() && request.header().lease_id() == 0) {
      request.mutable_header()->set_lease_id(lease_.lease_id());
      request.mutable_header()->set_group_id(lease_.group_id());
      *request.mutable_header()->mutable_prompt() = lease_.prompt();
    }
    const std::string bytes = request.SerializeAsString();
    step.message = bytes;
    if (inserts_[worker] == nullptr) {
      auto* reactor = ExperienceSinkService::InsertStream::Start(
          contexts_.emplace_back(), sink_.streams(),
          [this](ExperienceSinkService::InsertStream& stream) { return sink_.Take(stream); },
          std::nullopt);
      inserts_[worker] = std::make_unique<Insert>(reactor, fuzz::RunnerOf(sink_.streams()),
                                                  [](const v1::InsertResponse&) {});
    }
    Send(step, inserts_[worker]);
  }

  void HangUp(uint8_t which) {
    const bool cancelled = (which & 4) != 0;
    if ((which & 2) != 0) {
      if (work_[which & 1] != nullptr) work_[which & 1]->End(cancelled);
      work_[which & 1].reset();
    } else {
      if (inserts_[which & 1] != nullptr) inserts_[which & 1]->End(cancelled);
      inserts_[which & 1].reset();
    }
  }

  // The work of the learner's loop with a step that is whole.
  void TakeStep() {
    const auto groups = assembler_.Take(LearnerStep(step_), kGroups, absl::ZeroDuration());
    if (!groups.ok()) return;
    OXBOW_CHECK(groups->size() == kGroups) << groups->size();
    for (const ReceivedGroup& received : *groups) CheckAccepted(received.group);
    (void)coordinator_.TakePlanned(LearnerStep(step_));
    coordinator_.Commit(LearnerStep(step_));
    ++step_;
    coordinator_.published().Add(PolicyVersion(step_), LearnerStep(step_));
    coordinator_.Plan(PlanOf(step_));
  }

  void CheckAccepted(const v1::Group& group) {
    OXBOW_CHECK(accepted_.insert(group.group_id()).second) << "twice: " << group.group_id();
    OXBOW_CHECK(group.group_id() / kGroups == step_) << group.group_id();
    OXBOW_CHECK(group.prompt().id() == 100 + group.group_id() % kGroups) << group.prompt().id();
    OXBOW_CHECK(group.epoch() == kEpoch) << group.epoch();
    for (const v1::Trajectory& trajectory : group.trajectories()) {
      const std::string& bytes = trajectory.latents().data();
      const uint64_t latents = bytes.size() / (kLatent * sizeof(float));
      OXBOW_CHECK(trajectory.sample() < kGroupSize) << trajectory.sample();
      OXBOW_CHECK(trajectory.first_latent() + latents <= kSteps + 1) << trajectory.first_latent();
      OXBOW_CHECK(!trajectory.replayed() || trajectory.kept_steps() == kKept);
      for (size_t at = 0; at < bytes.size(); at += sizeof(float)) {
        float number;
        std::memcpy(&number, bytes.data() + at, sizeof number);
        OXBOW_CHECK(std::isfinite(number)) << number;
      }
    }
  }

  prometheus::Registry registry_;
  LearnerMetrics metrics_;
  FakeClock clock_;
  GroupAssembler assembler_;
  Coordinator coordinator_;
  RunProgress progress_;
  ByteBudget budget_{kBudget};
  std::list<grpc::CallbackServerContext> contexts_;
  CoordinatorService service_;
  ExperienceSinkService sink_;
  std::unique_ptr<Work> work_[2];
  std::unique_ptr<Insert> inserts_[2];
  v1::Lease lease_;
  uint64_t step_ = 0;
  std::set<uint64_t> accepted_;
};

}  // namespace
}  // namespace oxbow::learner

std::vector<const google::protobuf::Message*> oxbow::fuzz::CallMessages() {
  return {&v1::RegisterRequest::default_instance(),
          &v1::StatusRequest::default_instance(),
          &v1::DrainRequest::default_instance(),
          &v1::WorkRequest::default_instance(),
          &v1::WorkRequest::default_instance(),
          &v1::InsertRequest::default_instance(),
          &v1::InsertRequest::default_instance(),
          nullptr,
          nullptr,
          nullptr};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace oxbow;  // NOLINT: a file of one function.
  fuzz::BeQuiet();
  learner::Learner learner;
  for (const fuzz::CallStep& step : fuzz::Script(data, size, learner::kCalls)) learner.Do(step);
  return 0;
}
