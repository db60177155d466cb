// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/fake_learner.h"

#include <ATen/ATen.h>

#include <utility>

#include "base/sha256.h"
#include "io/tensor_torch.h"
#include "rpc/convert.h"
#include "rpc/convert_torch.h"
#include "run/prompt.h"
#include "services/weights/probe.h"
#include "services/weights/snapshot_maker.h"
#include "tests/testing/tiny_model.h"

namespace oxbow::rollout {
namespace {

constexpr absl::Duration kDeadline = absl::Seconds(30);

v1::Lease MakeLease(uint64_t group, uint32_t size) {
  v1::Lease lease;
  lease.set_lease_id(10 * group);
  lease.set_group_id(group);
  lease.set_attempt(1);
  *lease.mutable_prompt() = run::MakePrompt("text " + std::to_string(group), "{}");
  lease.set_group_size(size);
  lease.set_seconds(1);
  return lease;
}

// Names the conditioning of `group` in the lease, and serves it or a forgery of the same size.
void AddConditioning(uint64_t group, bool forged, weights::ContentStore& served, v1::Lease& lease) {
  const auto bytes = [](uint64_t of) {
    return rpc::ToProto(TinyConditioning(of)).SerializeAsString();
  };
  lease.set_conditioning_sha256(Sha256(bytes(group)));
  lease.set_conditioning_bytes(bytes(group).size());
  served.Put(lease.conditioning_sha256(),
             std::make_shared<const std::string>(bytes(forged ? group + 1 : group)));
}

}  // namespace

class FakeLearner::Coordinator final : public v1::Coordinator::Service {
 public:
  explicit Coordinator(FakeLearner& learner) : learner_(learner) {}

  grpc::Status Register(grpc::ServerContext*, const v1::RegisterRequest*,
                        v1::RegisterResponse* response) override {
    *response = learner_.Registration();
    absl::MutexLock lock(&learner_.mutex_);
    ++learner_.seen_.registrations;
    return grpc::Status::OK;
  }

  grpc::Status Work(grpc::ServerContext*,
                    grpc::ServerReaderWriter<v1::WorkResponse, v1::WorkRequest>* stream) override {
    v1::WorkRequest request;
    while (stream->Read(&request)) {
      if (request.epoch() != learner_.script_.epoch.value) {
        return grpc::Status(grpc::StatusCode::ABORTED, "another epoch");
      }
      for (const v1::WorkResponse& response : Answer(request)) stream->Write(response);
      if (request.has_goodbye()) break;
      const bool wants_none = request.has_credit() && request.credit().groups() == 0;
      if (wants_none && learner_.script_.hangs_up) break;
    }
    return grpc::Status::OK;
  }

 private:
  std::vector<v1::WorkResponse> Answer(const v1::WorkRequest& request) {
    std::vector<v1::WorkResponse> responses;
    absl::MutexLock lock(&learner_.mutex_);
    if (request.has_finished() && !request.finished().failure().empty()) {
      learner_.seen_.failures.push_back(request.finished());
    }
    if (request.has_goodbye()) learner_.seen_.goodbye = true;
    if (request.has_hello() && learner_.script_.run_complete) {
      responses.emplace_back().mutable_drain()->set_run_complete(true);
    }
    if (request.has_renew()) {
      ++learner_.seen_.renewals;
      learner_.seen_.waiting_for = request.renew().waiting_for();
      learner_.seen_.renewing = {request.renew().lease_ids().begin(),
                                 request.renew().lease_ids().end()};
      learner_.seen_.renewed.insert(learner_.seen_.renewing);
      v1::WorkResponse::Renewed& renewed = *responses.emplace_back().mutable_renewed();
      if (learner_.script_.renews) *renewed.mutable_lease_ids() = request.renew().lease_ids();
    }
    if (request.has_credit()) {
      learner_.seen_.credits.push_back(request.credit());
      for (uint32_t i = 0; i < request.credit().groups() && !learner_.leases_.empty(); ++i) {
        *responses.emplace_back().mutable_lease() = std::move(learner_.leases_.front());
        learner_.leases_.pop_front();
      }
    }
    return responses;
  }

  FakeLearner& learner_;
};

class FakeLearner::Sink final : public v1::ExperienceSink::Service {
 public:
  explicit Sink(FakeLearner& learner) : learner_(learner) {}

  grpc::Status Insert(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::InsertResponse, v1::InsertRequest>* stream) override {
    v1::InsertRequest request;
    if (!stream->Read(&request) || !request.has_header()) return Broken("no header");
    {
      absl::MutexLock lock(&learner_.mutex_);
      if (learner_.seen_.refused < learner_.script_.refusals) {
        const bool busy = learner_.seen_.refused++ % 2 == 0;
        return {busy ? grpc::StatusCode::RESOURCE_EXHAUSTED : grpc::StatusCode::UNAVAILABLE,
                "as scripted"};
      }
    }
    v1::Group group = request.header();
    if (grpc::Status taken = TakeLatents(*stream, request, group); !taken.ok()) return taken;
    v1::InsertResponse response;
    response.mutable_ack()->set_group_id(group.group_id());
    response.mutable_ack()->set_lease_id(group.lease_id());
    response.mutable_ack()->set_outcome(learner_.script_.outcome);
    {
      absl::MutexLock lock(&learner_.mutex_);
      learner_.seen_.groups.push_back(std::move(group));
    }
    stream->Write(response);
    return grpc::Status::OK;
  }

 private:
  // In chunks, or with the header if they are small.
  grpc::Status TakeLatents(grpc::ServerReaderWriter<v1::InsertResponse, v1::InsertRequest>& stream,
                           v1::InsertRequest& request, v1::Group& group) {
    std::vector<v1::Tensor> headers;
    uint64_t with_header = 0;
    for (v1::Trajectory& trajectory : *group.mutable_trajectories()) {
      with_header += trajectory.latents().data().size();
      headers.push_back(trajectory.latents());
      headers.back().clear_data();
    }
    auto chunks = rpc::ChunkAssembler::Start(headers, 1 << 20);
    if (!chunks.ok()) return Broken(std::string(chunks.status().message()));
    if (with_header > rpc::kHeaderLatentBytes) return Broken("too many bytes in the header");
    for (int i = 0; with_header > 0 && i < group.trajectories_size(); ++i) {
      const std::string& data = group.trajectories(i).latents().data();
      if (data.empty()) continue;
      if (!chunks->Add(static_cast<uint32_t>(i), 0, data).ok()) return Broken("bad latents");
    }
    if (with_header > 0) {
      return chunks->complete() ? grpc::Status::OK : Broken("latents that are not whole");
    }
    uint64_t credit = 0;
    while (!chunks->complete()) {
      v1::InsertResponse more;
      more.mutable_credit()->set_bytes(learner_.script_.credit_piece);
      credit += learner_.script_.credit_piece;
      stream.Write(more);
      while (credit > 0 && !chunks->complete()) {
        if (!stream.Read(&request)) return Broken("ended early");
        const std::string& data = request.chunk().data();
        if (data.size() > credit) return Broken("more than was granted");
        if (!chunks->Add(request.chunk().trajectory(), request.chunk().offset(), data).ok()) {
          return Broken("bad chunk");
        }
        credit -= data.size();
        // A worker that waits for credit for a whole piece needs more than the rest.
        if (credit < learner_.script_.credit_piece) break;
      }
    }
    std::vector<std::string> bytes = std::move(*chunks).Take();
    for (int i = 0; i < group.trajectories_size(); ++i) {
      group.mutable_trajectories(i)->mutable_latents()->set_data(bytes[static_cast<size_t>(i)]);
    }
    return grpc::Status::OK;
  }

  static grpc::Status Broken(const std::string& why) {
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, why);
  }

  FakeLearner& learner_;
};

class FakeLearner::Scorer final : public v1::Reward::Service {
 public:
  explicit Scorer(FakeLearner& learner) : learner_(learner) {}

  grpc::Status Describe(grpc::ServerContext*, const v1::DescribeRequest*,
                        v1::DescribeResponse* response) override {
    absl::MutexLock lock(&learner_.mutex_);
    if (learner_.rewards_away_) return {grpc::StatusCode::UNAVAILABLE, "as scripted"};
    v1::RewardDescription& reward = *response->add_rewards();
    reward.set_name(learner_.script_.reward);
    reward.set_value_max(255);
    response->set_batch_max(64);
    return grpc::Status::OK;
  }

  // The score is the first pixel, so that the test knows the expected value.
  grpc::Status Score(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::ScoreResponse, v1::ScoreRequest>* stream) override {
    {
      absl::MutexLock lock(&learner_.mutex_);
      ++learner_.seen_.scoring;
      const auto released = [this] { return !learner_.hold_scores_; };
      learner_.mutex_.AwaitWithTimeout(absl::Condition(&released), kDeadline);
    }
    v1::ScoreRequest request;
    while (stream->Read(&request)) {
      for (int i = 0; i < request.items_size(); ++i) {
        v1::ScoreResponse response;
        response.set_item(request.items(i).item());
        if (static_cast<int>(request.items(i).item()) == learner_.script_.unscored) {
          response.set_status_code(grpc::StatusCode::INTERNAL);
          response.set_status_message("scorer broke");
        } else {
          v1::NamedValue& value = *response.add_rewards();
          value.set_name("brightness");
          value.set_value(static_cast<uint8_t>(request.items(i).image().pixels()[0]));
        }
        stream->Write(response);
      }
    }
    return grpc::Status::OK;
  }

 private:
  FakeLearner& learner_;
};

FakeLearner::FakeLearner(Script script) : script_(std::move(script)) {
  weights_ = std::make_unique<weights::WeightChannelService>(
      weights::WeightChannelService::Options{.epoch = script_.epoch, .content = &content_},
      metrics_, Clock::Steady(), [this](const v1::ReportAppliedRequest& report) {
        absl::MutexLock lock(&mutex_);
        seen_.reports.push_back(report);
      });
  for (int i = 0; i < script_.leases; ++i) {
    const uint64_t group = 100 + static_cast<uint64_t>(i);
    leases_.push_back(MakeLease(group, script_.group_size));
    AddConditioning(script_.one_prompt ? 100 : group, script_.forges_conditioning, content_,
                    leases_.back());
    leases_.back().set_drops_unscored(script_.drops_unscored);
    leases_.back().set_policy_version_min(script_.version_min);
  }
  rewards_away_ = script_.rewards_away;
  Publish();
  coordinator_ = std::make_unique<Coordinator>(*this);
  sink_ = std::make_unique<Sink>(*this);
  scorer_ = std::make_unique<Scorer>(*this);
  auto server = rpc::Server::Start(
      {.listen = script_.listen}, {weights_.get(), coordinator_.get(), sink_.get(), scorer_.get()});
  OXBOW_CHECK(server.ok()) << server.status();
  server_ = *std::move(server);
}

FakeLearner::~FakeLearner() {
  weights_->Stop();
  HoldScores(false);
  server_->Shutdown(absl::Milliseconds(100));
}

void FakeLearner::HoldScores(bool hold) {
  absl::MutexLock lock(&mutex_);
  hold_scores_ = hold;
}

void FakeLearner::BringRewards() {
  absl::MutexLock lock(&mutex_);
  rewards_away_ = false;
}

FakeLearner::Seen FakeLearner::Await(const std::function<bool(const Seen&)>& enough) {
  absl::MutexLock lock(&mutex_);
  const auto ready = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return enough(seen_); };
  mutex_.AwaitWithTimeout(absl::Condition(&ready), kDeadline);
  return seen_;
}

void FakeLearner::Publish() {
  const std::unique_ptr<model::Policy> policy = TinyPolicy(3);
  weights::TensorBytesByName frozen, trained;
  for (const auto& [name, tensor] : policy->frozen()) frozen[name] = io::FromTorch(tensor);
  for (const auto& [name, tensor] : policy->parameters().tensors()) {
    trained[name] = io::FromTorch(tensor);
  }
  weights::Snapshot snapshot =
      weights::MakeSnapshot({script_.epoch, script_.version, LearnerStep(1)}, frozen, trained);
  const auto shape = weights::ProbeShapeOf(*TinyArchitecture(), kTinyLatent, {});
  const std::unique_ptr<model::Policy> probed = TinyPolicy(script_.wrong_probe ? 4 : 3);
  *snapshot.manifest.mutable_probe() = weights::RunProbe(probed->current(), *shape, 17);
  OXBOW_CHECK(weights_->Publish(std::move(snapshot)).ok()) << "publish";
}

v1::RegisterResponse FakeLearner::Registration() const {
  v1::RegisterResponse response;
  response.set_epoch(script_.epoch.value);
  response.set_run_id("run");
  response.set_protocol(script_.protocol);
  v1::RunConfig& config = *response.mutable_config();
  config.mutable_run()->set_seed(11);
  config.mutable_model()->set_trained(v1::TRAINED_PART_FULL);
  config.mutable_model()->set_compute_dtype(v1::STORAGE_D_TYPE_F32);
  config.mutable_model()->set_cuda_graphs(script_.cuda_graphs);
  v1::SamplingConfig& sampling = *config.mutable_sampling();
  sampling.set_steps(4);
  sampling.set_schedule(v1::SCHEDULE_KIND_LINSPACE);
  sampling.set_shift(1);
  sampling.set_dynamics(v1::DYNAMICS_KIND_FLOW_SDE);
  sampling.set_eta(0.7);
  sampling.set_sde_count(2);
  sampling.set_solver(v1::SOLVER_KIND_EULER);
  sampling.mutable_window()->set_kind(v1::WINDOW_KIND_ALL);
  sampling.set_guidance(1);
  sampling.set_storage(v1::STORAGE_D_TYPE_BF16);
  sampling.set_tail(v1::TAIL_KIND_ODE);
  config.mutable_batch()->set_groups(4);
  config.mutable_batch()->set_group_size(script_.group_size);
  v1::RewardTerm& term = *config.mutable_reward()->add_terms();
  term.set_name("brightness");
  term.set_weight(2);
  config.mutable_reward()->set_on_failure(script_.on_failure);
  config.mutable_reward()->set_tries(1);
  config.mutable_reward()->set_timeout_seconds(30);
  config.mutable_services()->set_groups_in_flight(2);
  config.mutable_services()->set_rpc_timeout_seconds(10);
  const model::ArchitectureSource source = testing::GraphSource(kTinyGraph);
  response.set_transformer_config_json(source.config_json);
  response.set_transformer_graph_json(source.graph_json);
  response.add_sink_endpoints(endpoint());
  response.add_reward_endpoints(endpoint());
  if (script_.has_buffer) response.add_buffer_endpoints(endpoint());
  // Conditioning is of the first one; weights are of any.
  if (script_.conditioning_away) response.add_weight_endpoints("127.0.0.1:1");
  response.add_weight_endpoints(endpoint());
  response.set_lease_seconds(1);
  for (const int64_t size : kTinyLatent) response.add_latent_shape(size);
  return response;
}

}  // namespace oxbow::rollout
