// SPDX-License-Identifier: Apache-2.0
// A coordinator behind its services on a real channel, and a worker's side of them. Lease time is a
// FakeClock's.
#pragma once

#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "oxbow/v1/experience_sink.grpc.pb.h"
#include "rpc/channel.h"
#include "rpc/protocol_revision.h"
#include "rpc/server.h"
#include "services/learner/coordinator/coordinator_service.h"
#include "services/learner/coordinator/experience_sink_service.h"
#include "services/learner/record/run_progress.h"
#include "telemetry/metrics.h"

namespace oxbow::learner {

inline constexpr uint64_t kEpoch = 4;
inline constexpr int kSteps = 3;

inline GroupRules Rules() {
  return {.latent_shape = {1, 2, 2},
          .storage = v1::DTYPE_F32,
          .schedule_id = 77,
          .sde = {true, true, false},
          .group_size = 2};
}

inline Coordinator::Options Spec() {
  return {.leases = {.epoch = Epoch(kEpoch),
                     .groups_per_step = 2,
                     .lease_time = absl::Seconds(30),
                     .stragglers = {.quantile = 0.95, .factor = 1.5, .samples_min = 1}},
          .rules = Rules()};
}

inline StepPlan PlanOf(uint64_t step) {
  StepPlan plan{.step = LearnerStep(step)};
  for (uint64_t i = 0; i < 2; ++i) {
    PlannedGroup group{.id = GroupId(step * 2 + i), .step = LearnerStep(step)};
    group.prompt.set_id(100 + i);
    group.prompt.set_text("text 123");
    plan.groups.push_back(group);
  }
  return plan;
}

// A worker's two streams: leases and results.
class WorkerStreams {
 public:
  WorkerStreams(const std::string& endpoint, const std::string& id, uint64_t process = 1)
      : id_(id),
        process_(process),
        coordinator_(v1::Coordinator::NewStub(rpc::Connect(endpoint))),
        sink_(v1::ExperienceSink::NewStub(rpc::Connect(endpoint))),
        work_context_(rpc::ContextWithDeadline(absl::Seconds(20))),
        sink_context_(rpc::ContextWithDeadline(absl::Seconds(20))),
        work_(coordinator_->Work(work_context_.get())),
        insert_(sink_->Insert(sink_context_.get())) {}

  ~WorkerStreams() {
    work_context_->TryCancel();
    sink_context_->TryCancel();
    if (work_ != nullptr) (void)work_->Finish();
    (void)insert_->Finish();
  }

  void Credit(uint64_t version, uint32_t groups) {
    v1::WorkRequest request = Request();
    request.mutable_credit()->set_policy_version(version);
    request.mutable_credit()->set_groups(groups);
    ASSERT_TRUE(work_->Write(request));
  }

  void Fail(uint64_t lease, const std::string& reason, bool unscored = false,
            bool discarded = false) {
    v1::WorkRequest request = Request();
    request.mutable_finished()->set_unscored(unscored);
    request.mutable_finished()->set_lease_id(lease);
    request.mutable_finished()->set_failure(reason);
    request.mutable_finished()->set_discarded(discarded);
    ASSERT_TRUE(work_->Write(request));
  }

  // The reason of the stream's end, after it has ended.
  grpc::Status End() {
    v1::WorkResponse response;
    while (work_->Read(&response)) {
    }
    const grpc::Status status = work_->Finish();
    work_.reset();
    return status;
  }

  std::vector<uint64_t> Renew(uint64_t lease, const std::string& waiting_for = "") {
    v1::WorkRequest request = Request();
    request.mutable_renew()->set_waiting_for(waiting_for);
    request.mutable_renew()->add_lease_ids(lease);
    EXPECT_TRUE(work_->Write(request));
    const v1::WorkResponse response = Next();
    EXPECT_TRUE(response.has_renewed());
    return {response.renewed().lease_ids().begin(), response.renewed().lease_ids().end()};
  }

  v1::WorkResponse Next() {
    v1::WorkResponse response;
    EXPECT_TRUE(work_->Read(&response)) << "stream ended";
    return response;
  }

  v1::Group Result(const v1::Lease& lease, uint64_t version) const {
    v1::Group group;
    group.set_group_id(lease.group_id());
    group.set_lease_id(lease.lease_id());
    group.set_epoch(kEpoch);
    group.set_worker_id(id_);
    *group.mutable_prompt() = lease.prompt();
    for (uint32_t sample = 0; sample < 2; ++sample) {
      v1::Trajectory& trajectory = *group.add_trajectories();
      trajectory.set_sample(sample);
      trajectory.set_schedule_id(77);
      trajectory.set_reward(0.5);
      trajectory.mutable_latents()->set_dtype(v1::DTYPE_F32);
      for (const int64_t size : {kSteps + 1, 1, 2, 2})
        trajectory.mutable_latents()->add_shape(size);
      for (int step = 0; step < kSteps; ++step) {
        trajectory.add_log_prob(-1);
        trajectory.add_sde(step < 2);
        trajectory.add_behaviour_version(version);
      }
    }
    return group;
  }

  // Sends a group in two chunks a trajectory and returns the acknowledgement.
  v1::InsertResponse::Ack Insert(const v1::Group& group, float value = 0.25f) {
    v1::InsertRequest request;
    *request.mutable_header() = group;
    EXPECT_TRUE(insert_->Write(request));
    const std::vector<float> latents((kSteps + 1) * 4, value);
    const std::string bytes(reinterpret_cast<const char*>(latents.data()), latents.size() * 4);
    for (int i = 0; i < group.trajectories_size(); ++i) {
      for (const size_t offset : {size_t{0}, bytes.size() / 2}) {
        v1::InsertRequest chunk;
        chunk.mutable_chunk()->set_trajectory(static_cast<uint32_t>(i));
        chunk.mutable_chunk()->set_offset(offset);
        chunk.mutable_chunk()->set_data(bytes.substr(offset, bytes.size() / 2));
        EXPECT_TRUE(insert_->Write(chunk));
      }
    }
    v1::InsertResponse response;
    while (insert_->Read(&response)) {
      if (response.has_ack()) return response.ack();
    }
    ADD_FAILURE() << "no acknowledgement";
    return {};
  }

 private:
  v1::WorkRequest Request() const {
    v1::WorkRequest request;
    request.set_epoch(kEpoch);
    request.set_worker_id(id_);
    request.set_process(process_);
    return request;
  }

  const std::string id_;
  const uint64_t process_;
  std::unique_ptr<v1::Coordinator::Stub> coordinator_;
  std::unique_ptr<v1::ExperienceSink::Stub> sink_;
  std::unique_ptr<grpc::ClientContext> work_context_;
  std::unique_ptr<grpc::ClientContext> sink_context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::WorkRequest, v1::WorkResponse>> work_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::InsertRequest, v1::InsertResponse>> insert_;
};

class CoordinatorServiceTest : public ::testing::Test {
 protected:
  CoordinatorServiceTest()
      : metrics_(registry_),
        coordinator_(Spec(), clock_, assembler_, metrics_),
        progress_(clock_, metrics_, 10),
        service_(
            coordinator_, [this](v1::StatusResponse& status) { progress_.FillStatus(status); },
            Registration(), [this](const std::string&) { drained_ = true; },
            [](const std::string& worker) { return worker == "mute" ? "" : worker + ":1"; }),
        sink_(coordinator_, budget_, Rules(), metrics_),
        server_(*rpc::Server::Start({}, {&service_, &sink_})) {
    coordinator_.published().Add(PolicyVersion(0), LearnerStep(0));
    coordinator_.Plan(PlanOf(0));
  }
  ~CoordinatorServiceTest() override { server_->Shutdown(absl::Seconds(1)); }

  static v1::RegisterResponse Registration() {
    v1::RegisterResponse registration;
    registration.set_epoch(kEpoch);
    registration.add_sink_endpoints("here");
    return registration;
  }

  prometheus::Registry registry_;
  LearnerMetrics metrics_;
  FakeClock clock_;
  GroupAssembler assembler_;
  Coordinator coordinator_;
  RunProgress progress_;
  ByteBudget budget_{1 << 20};
  std::atomic<bool> drained_ = false;
  CoordinatorService service_;
  ExperienceSinkService sink_;
  std::unique_ptr<rpc::Server> server_;
};

}  // namespace oxbow::learner
